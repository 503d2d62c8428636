// The one table of config keys. Parsing, overrides, suggestions, to_json, range checks and the
// reference all walk it; a key exists nowhere else by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/config/config.h"

namespace tandem::config {

// An interval of numbers; for a list, of its elements. Limits count unless open. Integers' limits
// fit into them.
struct Range {
  double low, high;
  bool open_low = false, open_high = false;

  [[nodiscard]] bool holds(double v) const {
    return (open_low ? v > low : v >= low) && (open_high ? v < high : v <= high);
  }
  [[nodiscard]] std::string text() const;  // "in [0, 1)"; "" where everything is
};

// What is used as fp32 neither vanishes there nor becomes infinite between these.
inline constexpr double kLeastFp32 = 1e-37, kMostFp32 = 1e37;

struct Choice {
  std::string_view name;
  int value;
};

// A reference to a field of any enum type, with the names of its values.
struct ChoiceRef {
  void* target;
  int (*get)(const void* target);
  void (*set)(void* target, int value);
  std::span<const Choice> choices;

  [[nodiscard]] std::string_view name() const;
};

using FieldRef = std::variant<bool*, int*, std::uint64_t*, double*, std::string*, std::vector<int>*,
                              std::vector<std::string>*, ChoiceRef>;

struct Field {
  std::string_view section, key;
  FieldRef ref;
  Range range;
  std::string_view unit;
  std::string_view doc;  // one line

  [[nodiscard]] std::string name() const { return std::string(section) + "." + std::string(key); }
  [[nodiscard]] std::string type() const;  // "integer", "bool", or the names of its values
};

// Every key, grouped by section, bound to the fields of `config`, which must outlive the result.
std::vector<Field> fields(RunConfig& config);

}  // namespace tandem::config
