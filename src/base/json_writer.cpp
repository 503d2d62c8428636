#include "tandem/base/json_writer.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/json.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the UTF-8 sequence at `text`, or 0 if none begins there: overlong forms, surrogates and
// values above U+10FFFF do not count.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
    return tail(1, low, high) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
    return tail(1, low, high) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  else
    out += c;
}

}  // namespace

std::string excerpt(std::string_view text, std::size_t most) {
  std::size_t end = 0;  // never within a character
  for (std::size_t shown = 0; shown < most && end < text.size(); ++shown)
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  const std::string quoted = json_quote(text.substr(0, end));
  return quoted.substr(1, quoted.size() - 2) + (end < text.size() ? "..." : "");
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 1)
      append_escaped(out, text.front());
    else
      out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + '"';
}

void JsonWriter::new_line() {
  if (indent_ == 0 || (!levels_.empty() && levels_.back().one_line)) return;
  text_ += '\n';
  text_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  if (!levels_.back().empty) text_ += levels_.back().one_line && indent_ > 0 ? ", " : ",";
  levels_.back().empty = false;
  new_line();
}

JsonWriter& JsonWriter::open(char bracket, bool one_line) {
  before_value();
  text_ += bracket;
  levels_.push_back({one_line || (!levels_.empty() && levels_.back().one_line), true});
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  TANDEM_CHECK(!levels_.empty(), "JSON writer: '{}' closes nothing", bracket);
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.one_line) new_line();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::begin_array(bool one_line) {
  return open('[', one_line);
}

JsonWriter& JsonWriter::key(std::string_view name) {
  before_value();
  text_ += json_quote(name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view v) {
  return raw(json_quote(v));
}

JsonWriter& JsonWriter::value(double v) {
  return std::isfinite(v) ? raw(fmt::format("{}", v)) : null();
}

JsonWriter& JsonWriter::value(const Json& v) {
  struct Visitor {
    JsonWriter& w;
    void operator()(std::monostate) { w.null(); }
    void operator()(bool x) { w.value(x); }
    void operator()(std::int64_t x) { w.value(x); }
    void operator()(std::uint64_t x) { w.value(x); }
    void operator()(double x) { w.value(x); }
    void operator()(const std::string& x) { w.value(x); }
    void operator()(const Json::Array& x) {
      w.begin_array();
      for (const Json& item : x) w.value(item);
      w.end_array();
    }
    void operator()(const Json::Object& x) {
      w.begin_object();
      for (const auto& [name, member] : x) w.key(name).value(member);
      w.end_object();
    }
  };
  std::visit(Visitor{*this}, v.value_);
  return *this;
}

const std::string& JsonWriter::str() const {
  TANDEM_CHECK(levels_.empty(), "JSON writer: {} object(s) or array(s) still open", levels_.size());
  TANDEM_CHECK(!after_key_, "JSON writer: a key without a value");
  return text_;
}

}  // namespace tandem
