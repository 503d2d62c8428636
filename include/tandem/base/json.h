// Strict JSON: a small value tree and a parser that refuses what lenient ones let pass. The writer
// is base/json_writer.h.
//
// The parser refuses duplicate keys, trailing text, invalid UTF-8, numbers outside double, deep
// nesting and large texts, and names line and column. Getters check type and range and never
// convert: 3.0 is no integer, 2^40 no int, -1 no unsigned. Values are plain; safe to share
// read-only.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // members in the order of the text

  Json() = default;  // null
  explicit Json(bool v) : value_(v) {}
  explicit Json(std::int64_t v) : value_(v) {}
  explicit Json(std::uint64_t v);
  explicit Json(double v) : value_(v) {}
  explicit Json(std::string v) : value_(std::move(v)) {}
  explicit Json(Array v) : value_(std::move(v)) {}
  explicit Json(Object v) : value_(std::move(v)) {}

  // Getters throw Error(kBadInput) on a wrong type or range; `what` names the value in the message,
  // as in "manifest.json: step". Integers are accepted where a double is asked for, never the
  // reverse.
  [[nodiscard]] bool as_bool(std::string_view what) const;
  [[nodiscard]] std::int64_t as_int(
      std::string_view what, std::int64_t lowest = std::numeric_limits<std::int64_t>::min(),
      std::int64_t highest = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] std::uint64_t as_uint(std::string_view what) const;
  [[nodiscard]] double as_double(std::string_view what) const;
  [[nodiscard]] const std::string& as_string(std::string_view what) const;
  [[nodiscard]] const Array& as_array(std::string_view what) const;
  [[nodiscard]] const Object& as_object(std::string_view what) const;

  // Member `key` of an object; find returns nullptr, at throws when it is absent. Linear search.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] const Json& at(std::string_view key, std::string_view what) const;

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_object() const { return std::holds_alternative<Object>(value_); }
  [[nodiscard]] bool is_string() const { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] bool is_integer() const {
    return std::holds_alternative<std::int64_t>(value_) ||
           std::holds_alternative<std::uint64_t>(value_);
  }
  [[nodiscard]] std::string kind() const;  // "an integer", "a string", ... for messages
  [[nodiscard]] std::string dump() const;  // compact text
  bool operator==(const Json&) const = default;

 private:
  friend class JsonWriter;
  // A number is int64 when it is an integer that fits, uint64 when only that fits, else double.
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

struct JsonLimits {
  int depth = 64;
  std::size_t bytes = std::size_t{16} << 20;
};

// Parses one JSON text. `origin` (a file name) begins every message; errors throw Error(code).
Json parse_json(std::string_view text, const std::string& origin,
                ExitCode code = ExitCode::kBadInput, const JsonLimits& limits = {});

// Foreign text for a message: with escapes, without quotes, and no more than `most` characters of it.
std::string excerpt(std::string_view text, std::size_t most = 60);

}  // namespace tandem
