#include "values.h"

#include <algorithm>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::config {
namespace {

void check_range(const std::string& what, double value, const Range& range,
                 const std::string& shown) {
  if (!range.holds(value))
    throw_error(ExitCode::kUsage, "{} = {}: outside the range; give a value {}", what, shown,
                range.text());
}

void check_range(const std::string& what, double value, const Range& range) {
  check_range(what, value, range, fmt::format("{}", value));
}

// Integers as they were written, whatever their size.
void check_range(const std::string& what, const Json& value, const Range& range) {
  if (value.is_integer()) check_range(what, value.as_double(what), range, value.dump());
}

int to_int(const std::string& what, const Json& value, const Range& range) {
  check_range(what, value, range);
  return static_cast<int>(value.as_int(what));
}

// Strings are file names or parts of such.
std::string to_text(const std::string& what, const Json& value) {
  const std::string& text = value.as_string(what);
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control != text.end())
    throw_error(ExitCode::kUsage, "{} = \"{}\": character {} is a control character; leave it out",
                what, excerpt(text), control - text.begin());
  return text;
}

std::string to_file(const std::string& what, const Json& value) {
  std::string name = to_text(what, value);
  if (name.empty())
    throw_error(ExitCode::kUsage, "{} = \"\": an empty name; name a file, or give [] for none",
                what);
  return name;
}

int to_choice(const std::string& what, const Json& value, const ChoiceRef& ref) {
  const std::string& name = value.as_string(what);
  std::string known;
  std::vector<std::string_view> names;
  for (const Choice& c : ref.choices) {
    if (c.name == name) return c.value;
    names.push_back(c.name);
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", c.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  throw_error(ExitCode::kUsage, "{} = \"{}\": not one of {}{}", what, excerpt(name), known,
              nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

struct Assigner {
  const Field& field;
  const Json& value;
  std::string what;

  void operator()(bool* target) const { *target = value.as_bool(what); }
  void operator()(int* target) const { *target = to_int(what, value, field.range); }
  void operator()(std::uint64_t* target) const {
    // The upper limit is that of the type; in double its neighbour would be it.
    if (value.is_integer() && value.as_double(what) < field.range.low)
      check_range(what, value, field.range);
    *target = value.as_uint(what);
  }
  void operator()(double* target) const {
    const double v = value.as_double(what);
    check_range(what, v, field.range);
    *target = v;
  }
  void operator()(std::string* target) const { *target = to_text(what, value); }
  void operator()(std::vector<int>* target) const {
    std::vector<int> list;
    if (value.is_integer())
      throw_error(ExitCode::kUsage, "{}: expected an array, got {}; write it in brackets: [{}]",
                  what, value.kind(), value.dump());
    for (const Json& item : value.as_array(what))
      list.push_back(to_int(fmt::format("{}[{}]", what, list.size()), item, field.range));
    *target = std::move(list);
  }
  void operator()(std::vector<std::string>* target) const {
    std::vector<std::string> list;
    const Json::Array one = {value};
    for (const Json& item : value.is_string() ? one : value.as_array(what))
      list.push_back(to_file(fmt::format("{}[{}]", what, list.size()), item));
    *target = std::move(list);
  }
  void operator()(const ChoiceRef& ref) const { ref.set(ref.target, to_choice(what, value, ref)); }
};

struct RangeChecker {
  const Field& field;

  void operator()(const int* v) const { check_range(field.name(), *v, field.range); }
  void operator()(const double* v) const { check_range(field.name(), *v, field.range); }
  void operator()(const std::vector<int>* list) const {
    for (std::size_t i = 0; i < list->size(); ++i)
      check_range(fmt::format("{}[{}]", field.name(), i), (*list)[i], field.range);
  }
  void operator()(const bool*) const {}
  void operator()(const std::uint64_t*) const {}
  void operator()(const std::string*) const {}
  void operator()(const std::vector<std::string>*) const {}
  void operator()(const ChoiceRef&) const {}
};

struct ValueWriter {
  JsonWriter& writer;

  void operator()(const ChoiceRef& ref) const { writer.value(ref.name()); }
  template <class T>
  void operator()(const T* v) const {
    writer.value(*v);
  }
  template <class T>
  void operator()(const std::vector<T>* list) const {
    writer.begin_array(true);
    for (const T& item : *list) writer.value(item);
    writer.end_array();
  }
};

// Behind the type that a text is not of.
std::string_view way_to_write(const Field& field) {
  if (std::holds_alternative<bool*>(field.ref)) return "; write true or false";
  if (std::holds_alternative<std::vector<int>*>(field.ref)) return "; write it as [2,1]";
  if (std::holds_alternative<std::vector<std::string>*>(field.ref))
    return "; write it as [\"a\",\"b\"]";
  return "";
}

std::optional<Json> json_of(const Field& field, const std::string& text) {
  try {
    return parse_json(text, field.name(), ExitCode::kUsage);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void assign(const Field& field, const Json& value) {
  std::visit(Assigner{field, value, field.name()}, field.ref);
}

Json value_from_text(const Field& field, const std::string& text) {
  const bool is_list = std::holds_alternative<std::vector<std::string>*>(field.ref);
  const bool is_choice = std::holds_alternative<ChoiceRef>(field.ref);
  const bool is_text = std::holds_alternative<std::string*>(field.ref);
  const bool quoted = text.starts_with('"') || (is_list && text.starts_with('['));
  if (is_choice && !quoted) return Json(text);
  if (std::optional<Json> value = json_of(field, text)) {
    if (is_text && !value->is_string())
      throw_error(ExitCode::kUsage, "{} = {}: expected a string, got {}; quote it if it is a name",
                  field.name(), excerpt(text), value->kind());
    return std::move(*value);
  }
  if ((is_text || is_list) && !quoted) return Json(text);
  throw_error(ExitCode::kUsage, "{} = {}: not of the type {}{}", field.name(), excerpt(text),
              field.type(), way_to_write(field));
}

void write_value(JsonWriter& writer, const Field& field) {
  std::visit(ValueWriter{writer}, field.ref);
}

std::string range_violation(const Field& field) {
  try {
    std::visit(RangeChecker{field}, field.ref);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tandem::config
