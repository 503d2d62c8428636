#include "tandem/schedule/print.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>

#include "tandem/schedule/replay.h"

namespace tandem {
namespace {

constexpr int kLabelColumns = 9;
constexpr int kCellColumns = 4;
constexpr int kMaxBands = 12;  // more would no longer be a picture
constexpr int kRulerStep = 10;
constexpr const char* kColour[] = {"\033[44;97m", "\033[43;30m"};  // forward, backward
constexpr const char* kColourOff = "\033[0m";

// What one cell shows; `weight` is its share of the cell, so that the longest instruction wins.
struct Cell {
  const Instr* instr = nullptr;
  double weight = 0.0;
};
using Row = std::vector<Cell>;

char letter_of(NodeKind node) {
  constexpr char letters[] = {'I', 'A', 'N', 'D', 'E', 'C', 'G', 'M', 'H'};
  static_assert(std::size(letters) == kNumNodeKinds);
  return letters[static_cast<int>(node)];
}

char lower(char c) {
  return static_cast<char>(c - 'A' + 'a');
}
char digit(int number) {
  return number < 0 ? ' ' : static_cast<char>('0' + number % 10);
}

std::string cell_text(const Instr& instr) {
  const bool forward = instr.dir == Dir::kFwd;
  switch (instr.op) {
    case Op::kSend:
      return {'>', digit(instr.microbatch)};
    case Op::kRecv:
      return {'<', digit(instr.microbatch)};
    case Op::kGradSync:
      return {'+', digit(instr.chunk)};
    case Op::kOptStep:
      return "##";
    default:
      break;
  }
  const char letter = letter_of(instr.node);
  return {forward ? letter : lower(letter), digit(instr.microbatch)};
}

bool is_drawn(const Instr& instr) {
  return instr.op != Op::kRecord && instr.op != Op::kWait && instr.op != Op::kHostWait;
}

// When each instruction runs if every one on a lane takes a unit.
Replay in_units(const Program& program) {
  const auto unit = [](const Program&, const Instr&) { return 1.0; };
  return replay(std::span(&program, 1), unit, Peers::kAbsent);
}

// A program with its times.
struct TimedProgram {
  const Program& program;
  const Replay& run;
  int units;  // its length
};

// The part of it that is shown.
class Drawing {
 public:
  Drawing(const TimedProgram& timed, int width, bool colour, UnitRange range)
      : program_(timed.program),
        colour_(colour),
        per_band_(std::max(1, (width - kLabelColumns) / kCellColumns)),
        from_(range.from),
        units_(timed.units) {
    const auto& [program, run, units] = timed;
    const int rest = std::max(0, units - from_);
    shown_ = range.count > 0 ? std::min(range.count, rest) : rest;
    units_per_cell_ = std::max(1, ceil_div(shown_, per_band_ * kMaxBands));
    cells_ = ceil_div(shown_, units_per_cell_);
    for (std::size_t i = 0; i < program.instrs.size(); ++i)
      if (is_drawn(program.instrs[i]) && run.end[0][i] >= 0.0)
        place(program.instrs[i], run.begin[0][i] - from_, run.end[0][i] - from_);
  }

  [[nodiscard]] std::string text() const {
    std::string out = fmt::format("stage {} of {}, {} micro-batches, {} units", program_.stage,
                                  program_.pp, program_.microbatches, units_);
    if (shown_ < units_) out += fmt::format(", here {} to {}", from_, from_ + shown_);
    if (units_per_cell_ > 1) out += fmt::format(", {} in each cell", units_per_cell_);
    out += "\n";
    for (int begin = 0; begin < cells_; begin += per_band_)
      add_band(out, begin, std::min(cells_, begin + per_band_));
    return out + legend();
  }

 private:
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }

  void place(const Instr& instr, double begin, double end) {
    Row& row = rows_[static_cast<std::size_t>(instr.lane)];
    row.resize(cells_);
    const double scale = units_per_cell_;
    for (int c = std::max(0, static_cast<int>(begin / scale)); c < cells_ && c * scale < end; ++c) {
      const double weight = std::min(end, (c + 1) * scale) - std::max(begin, c * scale);
      if (weight > row[c].weight) row[c] = {&instr, weight};
    }
  }

  void add_band(std::string& out, int begin, int end) const {
    std::string ruler(kLabelColumns, ' ');
    for (int c = begin; c < end; c += kRulerStep)
      ruler += fmt::format("{:<{}}", from_ + c * units_per_cell_, kRulerStep * kCellColumns);
    out += fmt::format("\n{}\n", trimmed(ruler));
    for (int lane = 0; lane < kNumLanes; ++lane) {
      if (!occupied(rows_[lane], begin, end)) continue;
      std::string line = fmt::format("{:<{}}", name_of(static_cast<Lane>(lane)), kLabelColumns);
      for (int c = begin; c < end; ++c) line += painted(rows_[lane][c]);
      out += fmt::format("{}\n", trimmed(line));
    }
  }

  static bool occupied(const Row& row, int begin, int end) {
    return !row.empty() && std::any_of(row.begin() + begin, row.begin() + end,
                                       [](const Cell& c) { return c.instr != nullptr; });
  }

  [[nodiscard]] std::string painted(const Cell& cell) const {
    if (cell.instr == nullptr) return " .  ";
    const bool weight_gradient =
        cell.instr->op == Op::kRun && cell.instr->phase == Phase::kBwdWeight;
    std::string text = cell_text(*cell.instr);
    if (weight_gradient) text += '\'';
    const std::string blanks(kCellColumns - text.size(), ' ');
    if (!colour_) return text + blanks;
    return kColour[static_cast<int>(cell.instr->dir)] + text + kColourOff + blanks;
  }

  static std::string trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  [[nodiscard]] std::string legend() const {
    std::array<bool, kNumNodeKinds> nodes{};
    bool transfers = false, gradients = false, steps = false, weights = false;
    for (const Instr& instr : program_.instrs) {
      if (instr.op == Op::kRun) nodes[static_cast<int>(instr.node)] = true;
      transfers |= instr.op == Op::kSend || instr.op == Op::kRecv;
      gradients |= instr.op == Op::kGradSync;
      steps |= instr.op == Op::kOptStep;
      weights |= instr.op == Op::kRun && instr.phase == Phase::kBwdWeight;
    }
    std::string out = "\n";
    for (std::size_t n = 0; n < nodes.size(); ++n)
      if (nodes[n])
        out += fmt::format("{} {}  ", letter_of(static_cast<NodeKind>(n)),
                           name_of(static_cast<NodeKind>(n)));
    if (transfers) out += "> send  < receive  ";
    if (gradients) out += "+ gradient sync of a chunk  ";
    if (steps) out += "## optimizer step";
    out = fmt::format("{}\n", trimmed(out));
    out += colour_ ? fmt::format("{}F0{} forward  {}f0{} backward", kColour[0], kColourOff,
                                 kColour[1], kColourOff)
                   : "UPPER CASE forward  lower case backward";
    if (weights) out += "  ' weight gradient";
    return out +
           "  digit: micro-batch mod 10\nchunks and layers: --text, or a pointer on a box of "
           "--svg\n";
  }

  const Program& program_;
  bool colour_;
  int per_band_;   // cells
  int from_;       // first unit shown
  int units_;      // length of the program
  int shown_ = 0;  // units
  int units_per_cell_ = 1;
  int cells_ = 0;
  std::array<Row, kNumLanes> rows_;
};

std::string task_text(const Task& task) {
  return fmt::format("{}{}c{}", name_of(task.dir), task.microbatch, task.chunk);
}

// [first, last) of the part in which forwards and backwards alternate.
std::pair<std::size_t, std::size_t> steady_part(const std::vector<Task>& tasks) {
  const bool pairs =
      std::any_of(tasks.begin(), tasks.end(), [](const Task& t) { return t.paired; });
  std::size_t first = tasks.size(), last = tasks.size();
  for (std::size_t i = 0; i + 1 < tasks.size(); ++i) {
    const bool alternates = tasks[i].dir == Dir::kFwd && tasks[i + 1].dir == Dir::kBwd;
    if (!alternates || tasks[i].paired != pairs) continue;
    first = std::min(first, i);
    last = i + 2;
  }
  return {first, last};
}

}  // namespace

LaneChart::LaneChart(const Program& program) : program_(program), run_(in_units(program)) {
  double last = 0.0;
  std::optional<double> backward;
  for (std::size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& instr = program.instrs[i];
    last = std::max(last, run_.end[0][i]);
    const bool first = !backward || run_.begin[0][i] < *backward;
    if (instr.op == Op::kRun && instr.dir == Dir::kBwd && first) backward = run_.begin[0][i];
  }
  units_ = static_cast<int>(last);
  first_backward_ = static_cast<int>(backward.value_or(0.0));
}

std::string LaneChart::text(int width, bool colour, UnitRange range) const {
  return Drawing({program_, run_, units_}, width, colour, range).text();
}

std::string task_line(const std::vector<Task>& tasks) {
  const auto [first, last] = steady_part(tasks);
  std::string out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool pair_before = i > 0 && tasks[i - 1].paired;
    if (i == first || (i == last && i > 0))
      out += i > 0 ? " | " : "| ";
    else if (i > 0)
      out += pair_before ? "&" : " ";
    out += task_text(tasks[i]);
  }
  return out;
}

}  // namespace tandem
