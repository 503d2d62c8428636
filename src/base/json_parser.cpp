// The parser of json.h, on nlohmann's event interface: its own value tree would let the last of
// two equal keys win and convert numbers silently.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tandem/base/json.h"

namespace tandem {
namespace {

// Walks the text and remembers how far the lexer has read, so that an event can name its place.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *furthest_ = std::max(*furthest_, at_);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const std::string& origin, ExitCode code, int max_depth)
      : text_(text), origin_(origin), code_(code), max_depth_(max_depth) {}

  Json build() {
    furthest_ = text_.data();
    const char* end = text_.data() + text_.size();
    nlohmann::json::sax_parse(CountingIterator(text_.data(), &furthest_),
                              CountingIterator(end, &furthest_), this);
    return std::move(root_);
  }

  // nlohmann's event interface.
  bool null() { return add(Json()); }
  bool boolean(bool v) { return add(Json(v)); }
  bool number_integer(std::int64_t v) { return add(Json(v)); }
  bool number_unsigned(std::uint64_t v) { return add(Json(v)); }
  // An integer too large for 64 bits arrives here too: it becomes a double, which no integer getter
  // takes.
  bool number_float(double v, const std::string&) { return add(Json(v)); }
  bool string(std::string& v) { return add(Json(std::move(v))); }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return push(true); }
  bool start_array(std::size_t) { return push(false); }
  bool end_object() { return pop(); }
  bool end_array() { return pop(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second)
      fail(fmt::format("the key \"{}\" appears twice in one object; keep one", excerpt(name)));
    level.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    std::string why = error.what();  // "[json.exception...] parse error at line 1, column 2: why"
    const std::size_t bracket = why.find("] ");
    if (bracket != std::string::npos) why.erase(0, bracket + 2);
    if (why.rfind("parse error at line", 0) == 0) why.erase(0, why.find(": ") + 2);
    // The lexer quotes what it read; a long line would drown the reason.
    constexpr std::size_t kShown = 200;
    if (why.size() > kShown) why = why.substr(0, kShown) + "...";
    why += hint();
    fail(why);
  }

 private:
  struct Level {
    bool is_object;
    std::string key;  // of the member being read
    Json::Object members;
    Json::Array items;
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void fail(const std::string& why) const {
    const std::string_view read =
        text_.substr(0, static_cast<std::size_t>(furthest_ - text_.data()));
    const auto line = std::count(read.begin(), read.end(), '\n') + 1;
    const std::size_t line_begin =
        read.rfind('\n') == std::string_view::npos ? 0 : read.rfind('\n') + 1;
    const std::size_t column = std::max<std::size_t>(1, read.size() - line_begin);
    throw_error(code_, "{}: line {}, column {}: {}", origin_, line, column, why);
  }

  // The bare word that holds the character, or nothing.
  [[nodiscard]] std::string_view word_at(std::size_t at) const {
    constexpr std::string_view kEnds = " \t\r\n,:[]{}\"";
    if (kEnds.find(text_[at]) != std::string_view::npos) return "";
    const std::size_t before = text_.substr(0, at).find_last_of(kEnds);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    return text_.substr(begin, text_.find_first_of(kEnds, at) - begin);
  }

  // What the lexer did not understand is written so elsewhere.
  [[nodiscard]] std::string_view hint() const {
    if (furthest_ == text_.data()) return "";
    const auto at = static_cast<std::size_t>(furthest_ - text_.data()) - 1;
    const std::string_view rest = text_.substr(at);
    const auto begins = [&](auto... words) { return (rest.starts_with(words) || ...); };
    if (begins("//", "/*", "#")) return "; JSON has no comments: leave them out";
    const std::string_view word = word_at(at);
    const auto is = [&](auto... words) { return ((word == words) || ...); };
    if (is("True", "TRUE", "False", "FALSE", "None", "Null", "NULL"))
      return "; JSON writes true, false and null in small letters";
    if (is("NaN", "nan", "NAN", "Infinity", "-Infinity", "inf", "-inf", "Inf", "-Inf"))
      return "; JSON has no NaN and no Infinity: give a finite number";
    if (begins("'")) return "; JSON has double quotes";
    const std::size_t before = text_.substr(0, at).find_last_not_of(" \t\r\n");
    const bool after_comma = before != std::string_view::npos && text_[before] == ',';
    if (after_comma && begins("}", "]")) return "; leave out the comma before it";
    return "";
  }

  bool add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = levels_.back(); level.is_object) {
      level.members.emplace_back(std::move(level.key), std::move(value));
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  bool push(bool is_object) {
    if (static_cast<int>(levels_.size()) >= max_depth_)
      fail(fmt::format("nested deeper than {} levels", max_depth_));
    levels_.push_back({is_object, {}, {}, {}, {}});
    return true;
  }

  bool pop() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return add(level.is_object ? Json(std::move(level.members)) : Json(std::move(level.items)));
  }

  std::string_view text_;
  const std::string& origin_;
  ExitCode code_;
  int max_depth_;
  const char* furthest_ = nullptr;
  std::vector<Level> levels_;
  Json root_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, ExitCode code,
                const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    throw_error(code, "{}: {} bytes of JSON, more than the {} allowed", origin, text.size(),
                limits.bytes);
  // The lexer takes it for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw_error(code, "{}: byte {} is NUL: this is binary data, not JSON text in UTF-8", origin,
                nul);
  return TreeBuilder(text, origin, code, limits.depth).build();
}

}  // namespace tandem
