#include <charconv>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/schedule/program.h"

namespace tandem {
namespace {

// One line, cut into words at blanks. Every failure names the line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), rest_(text), number_(number) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw_error(ExitCode::kBadInput, "program text, line {}: {} in \"{}\"", number_, what, text_);
  }

  [[nodiscard]] bool done() const { return peek().empty(); }
  [[nodiscard]] std::string_view peek() const {
    const std::size_t begin = rest_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return rest_.substr(begin, rest_.find_first_of(" \t\r", begin) - begin);
  }
  std::string_view next(std::string_view what) {
    const std::string_view word = peek();
    if (word.empty()) fail(fmt::format("{} is missing", what));
    rest_.remove_prefix(static_cast<std::size_t>(word.data() + word.size() - rest_.data()));
    return word;
  }

  [[nodiscard]] int number(std::string_view digits, std::string_view what) const {
    int value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
      fail(fmt::format("\"{}\" is no {}", digits, what));
    return value;
  }

  // The enumerator below `count` with this name.
  template <class Enum>
  [[nodiscard]] std::optional<Enum> find(std::string_view name, int count) const {
    for (int i = 0; i < count; ++i)
      if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
    return std::nullopt;
  }
  template <class Enum>
  [[nodiscard]] Enum named(std::string_view name, int count, std::string_view what) const {
    const std::optional<Enum> found = find<Enum>(name, count);
    if (!found) fail(fmt::format("\"{}\" is no {}", name, what));
    return *found;
  }

 private:
  std::string_view text_, rest_;
  int number_;
};

constexpr int kNumOps = static_cast<int>(Op::kOptStep) + 1;
constexpr int kNumPhases = static_cast<int>(Phase::kBwdWeight) + 1;

Lane lane(const Line& line, std::string_view name) {
  return line.named<Lane>(name, kNumLanes, "lane");
}

Dir dir(const Line& line, std::string_view name) {
  return line.named<Dir>(name, 2, "direction (F or B)");
}

// Cuts `word` at the first `separator`.
std::pair<std::string_view, std::string_view> cut(std::string_view word, char separator) {
  const std::size_t at = word.find(separator);
  if (at == std::string_view::npos) return {word, {}};
  return {word.substr(0, at), word.substr(at + 1)};
}

EventId event(const Line& line, std::string_view word) {
  const auto [d, l] = cut(word, ':');
  return {dir(line, d), lane(line, l)};
}

class Parser {
 public:
  Program run(std::string_view text) {
    bool header = false;
    int number = 0;
    while (!text.empty()) {
      const auto [first, rest] = cut(text, '\n');
      text = rest;
      Line line(first, ++number);
      if (line.done() || line.peek().front() == '#') continue;
      if (header)
        instr(line);
      else
        this->header(line);
      header = true;
    }
    if (!header) throw_error(ExitCode::kBadInput, "program text has no line \"program stage=...\"");
    return std::move(program_);
  }

 private:
  void header(Line& line) {
    if (line.next("\"program\"") != "program") line.fail("\"program\" is missing");
    const auto field = [&](std::string_view name) {
      const auto [key, value] = cut(line.next(name), '=');
      if (key != name) line.fail(fmt::format("{} = is missing", name));
      return line.number(value, name);
    };
    program_.stage = field("stage");
    program_.pp = field("pp");
    program_.vpp = field("vpp");
    program_.microbatches = field("microbatches");
    program_.num_buffers = field("buffers");
    if (program_.stage >= program_.pp) line.fail("stage is not below pp");
    if (!line.done()) line.fail(fmt::format("\"{}\" is unexpected", line.peek()));
  }

  void instr(Line& line) {
    Instr& instr = program_.instrs.emplace_back();
    instr.op = line.named<Op>(line.next("operation"), kNumOps, "operation");
    instr.lane = lane(line, line.next("lane"));
    if (instr.op == Op::kRecord || instr.op == Op::kWait) {
      const std::optional<Dir> own = line.find<Dir>(line.peek(), 2);
      if (own) line.next("direction");
      instr.event = event(line, line.next("event"));
      instr.dir = own.value_or(instr.event.dir);
    } else {
      instr.dir = dir(line, line.next("direction"));
      instr.chunk = field(line, 'c');
      instr.microbatch = field(line, 'm');
      instr.layer = field(line, 'l');
      if (instr.op == Op::kRun) node(line, instr);
      if (instr.op == Op::kHostWait) instr.event = event(line, line.next("event"));
      if (instr.op == Op::kSend) instr.peer = peer(line, "to");
      if (instr.op == Op::kRecv) instr.peer = peer(line, "from");
      while (!line.done()) instr.uses.push_back(use(line, line.next("slot")));
    }
    if (!line.done()) line.fail(fmt::format("\"{}\" is unexpected", line.peek()));
  }

  // "c3" with prefix c; -1 where the next word is something else ("counts.fwd", "r:...").
  static int field(Line& line, char prefix) {
    const std::string_view word = line.peek();
    if (word.size() < 2 || word[0] != prefix || word[1] < '0' || word[1] > '9') return -1;
    return line.number(line.next("number").substr(1), "number");
  }

  static void node(Line& line, Instr& instr) {
    const auto [kind, phase] = cut(line.next("node"), '.');
    instr.node = line.named<NodeKind>(kind, kNumNodeKinds, "node");
    instr.phase = line.named<Phase>(phase, kNumPhases, "phase");
    instr.moe = line.peek() == "moe";
    if (instr.moe) line.next("moe");
  }

  int peer(Line& line, std::string_view word) const {
    if (line.next(word) != word) line.fail(fmt::format("\"{} <stage>\" is missing", word));
    const int stage = line.number(line.next("stage"), "stage");
    if (stage >= program_.pp) line.fail("the peer is not below pp");
    return stage;
  }

  // "r:x.c0.m1.l3@7"
  SlotAccess use(const Line& line, std::string_view word) {
    const auto [access, rest] = cut(word, ':');
    const auto [name, buffer] = cut(rest, '@');
    SlotAccess result;
    if (access == "r")
      result.access = Access::kRead;
    else if (access == "w")
      result.access = Access::kWrite;
    else if (access == "a")
      result.access = Access::kAccumulate;
    else
      line.fail(fmt::format("\"{}\" is no slot (r:, w: or a:)", word));
    const int bound = rest.find('@') == std::string_view::npos ? -1 : line.number(buffer, "buffer");
    if (bound >= program_.num_buffers)
      line.fail(fmt::format("buffer of \"{}\" is out of range", word));
    const auto [it, fresh] =
        numbers_.try_emplace(name, static_cast<std::int32_t>(program_.slots.size()));
    if (fresh) program_.slots.push_back(slot(line, name, bound));
    result.slot = it->second;
    if (program_.slots[static_cast<std::size_t>(result.slot)].buffer != bound)
      line.fail(fmt::format("\"{}\" is bound to another buffer above", word));
    return result;
  }

  static Slot slot(const Line& line, std::string_view name, int buffer) {
    Slot slot;
    auto [kind, rest] = cut(name, '.');
    slot.kind = line.named<SlotKind>(kind, kNumSlotKinds, "slot");
    slot.chunk = -1;
    slot.buffer = buffer;
    while (!rest.empty()) {
      const auto [part, more] = cut(rest, '.');
      rest = more;
      std::int32_t* field = part.starts_with('c')   ? &slot.chunk
                            : part.starts_with('m') ? &slot.microbatch
                            : part.starts_with('l') ? &slot.layer
                                                    : nullptr;
      if (field == nullptr || part.size() < 2)
        line.fail(fmt::format("\"{}\" is no part of a slot", part));
      *field = line.number(part.substr(1), "number");
    }
    if (slot.chunk < 0) line.fail(fmt::format("slot \"{}\" names no chunk", name));
    return slot;
  }

  Program program_;
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // slot name -> index
};

}  // namespace

Program from_text(std::string_view text) {
  return Parser().run(text);
}

}  // namespace tandem
