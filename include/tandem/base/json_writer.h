// Writes JSON piece by piece. Doubles use the shortest text that reads back equal; non-finite ones
// become null. Bytes that are no UTF-8 become U+FFFD, so the output is always valid JSON.
//   JsonWriter w; w.begin_object().key("step").value(3).key("loss").value(2.5).end_object();
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class Json;

class JsonWriter {
 public:
  explicit JsonWriter(int indent = 0) : indent_(indent) {}  // 0: compact, one line

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array(bool one_line = false);  // one_line: even where indent > 0
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view v);
  JsonWriter& value(const char* v) { return value(std::string_view(v)); }
  JsonWriter& value(const std::string& v) { return value(std::string_view(v)); }
  JsonWriter& value(bool v) { return raw(v ? "true" : "false"); }
  JsonWriter& value(int v) { return raw(std::to_string(v)); }
  JsonWriter& value(long v) { return raw(std::to_string(v)); }
  JsonWriter& value(long long v) { return raw(std::to_string(v)); }
  JsonWriter& value(unsigned v) { return raw(std::to_string(v)); }
  JsonWriter& value(unsigned long v) { return raw(std::to_string(v)); }
  JsonWriter& value(unsigned long long v) { return raw(std::to_string(v)); }
  JsonWriter& value(double v);
  JsonWriter& value(const Json& v);
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // text that is JSON already

  // The text so far; checks that every object and array is closed.
  [[nodiscard]] const std::string& str() const;

 private:
  struct Level {
    bool one_line, empty;
  };
  JsonWriter& open(char bracket, bool one_line = false);
  JsonWriter& close(char bracket);
  void before_value();
  void new_line();

  int indent_;
  bool after_key_ = false;
  std::vector<Level> levels_;
  std::string text_;
};

// "text" with quotes and escapes.
std::string json_quote(std::string_view text);

}  // namespace tandem
