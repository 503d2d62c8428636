#include "tandem/base/json.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/json_writer.h"

namespace tandem {
namespace {

[[noreturn]] void wrong_kind(std::string_view what, std::string_view wanted, const Json& got) {
  throw_error(ExitCode::kBadInput, "{}: expected {}, got {}", what, wanted, got.kind());
}

// A number that is no integer of 64 bits may still look like one.
[[noreturn]] void no_integer(std::string_view what, const double* number, const Json& got) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (number == nullptr || std::trunc(*number) != *number) wrong_kind(what, "an integer", got);
  if (std::abs(*number) >= kTwoTo63)
    throw_error(ExitCode::kBadInput, "{}: expected an integer, got {}, which 64 bits do not hold",
                what, *number);
  throw_error(ExitCode::kBadInput,
              "{}: expected an integer, got {}, written with a fraction or an exponent; write {}",
              what, got.kind(), static_cast<std::int64_t>(*number));
}

}  // namespace

Json::Json(std::uint64_t v) {
  if (v <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    value_ = static_cast<std::int64_t>(v);
  else
    value_ = v;
}

bool Json::as_bool(std::string_view what) const {
  if (const bool* v = std::get_if<bool>(&value_)) return *v;
  wrong_kind(what, "true or false", *this);
}

std::int64_t Json::as_int(std::string_view what, std::int64_t lowest, std::int64_t highest) const {
  const auto* v = std::get_if<std::int64_t>(&value_);
  if (!is_integer()) no_integer(what, std::get_if<double>(&value_), *this);
  if (v == nullptr || *v < lowest || *v > highest)
    throw_error(ExitCode::kBadInput, "{}: {} is outside {} .. {}", what, dump(), lowest, highest);
  return *v;
}

std::uint64_t Json::as_uint(std::string_view what) const {
  if (const auto* v = std::get_if<std::uint64_t>(&value_)) return *v;
  const auto* v = std::get_if<std::int64_t>(&value_);
  if (v == nullptr) no_integer(what, std::get_if<double>(&value_), *this);
  if (*v < 0) throw_error(ExitCode::kBadInput, "{}: {} is negative", what, *v);
  return static_cast<std::uint64_t>(*v);
}

double Json::as_double(std::string_view what) const {
  if (const auto* v = std::get_if<double>(&value_)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*v);
  wrong_kind(what, "a number", *this);
}

const std::string& Json::as_string(std::string_view what) const {
  if (const auto* v = std::get_if<std::string>(&value_)) return *v;
  wrong_kind(what, "a string", *this);
}

const Json::Array& Json::as_array(std::string_view what) const {
  if (const auto* v = std::get_if<Array>(&value_)) return *v;
  wrong_kind(what, "an array", *this);
}

const Json::Object& Json::as_object(std::string_view what) const {
  if (const auto* v = std::get_if<Object>(&value_)) return *v;
  wrong_kind(what, "an object", *this);
}

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto it = std::find_if(object->begin(), object->end(),
                               [&](const auto& member) { return member.first == key; });
  return it == object->end() ? nullptr : &it->second;
}

const Json& Json::at(std::string_view key, std::string_view what) const {
  if (!std::holds_alternative<Object>(value_)) wrong_kind(what, "an object", *this);
  if (const Json* found = find(key)) return *found;
  throw_error(ExitCode::kBadInput, "{}: the key \"{}\" is missing", what, key);
}

std::string Json::kind() const {
  struct Namer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(std::uint64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(double v) const { return fmt::format("the number {}", v); }
    std::string operator()(const std::string& v) const {
      return "the string \"" + excerpt(v) + '"';
    }
    std::string operator()(const Array&) const { return "an array"; }
    std::string operator()(const Object&) const { return "an object"; }
  };
  return std::visit(Namer{}, value_);
}

std::string Json::dump() const {
  JsonWriter writer;
  writer.value(*this);
  return writer.str();
}

}  // namespace tandem
