#include "values.h"

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::config {
namespace {

void check_range(const std::string& what, double value, const Range& range) {
  if (!range.holds(value))
    throw_error(ExitCode::kUsage, "{} = {}: outside the range; give a value {}", what, value,
                range.text());
}

int to_int(const std::string& what, const Json& value, const Range& range) {
  const std::int64_t v = value.as_int(what, static_cast<std::int64_t>(range.low),
                                      static_cast<std::int64_t>(range.high));
  return static_cast<int>(v);
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
  throw_error(ExitCode::kUsage, "{} = {}: not one of {}{}", what, json_quote(name), known,
              nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

struct Assigner {
  const Field& field;
  const Json& value;
  std::string what;

  void operator()(bool* target) const { *target = value.as_bool(what); }
  void operator()(int* target) const { *target = to_int(what, value, field.range); }
  void operator()(std::uint64_t* target) const { *target = value.as_uint(what); }
  void operator()(double* target) const {
    const double v = value.as_double(what);
    check_range(what, v, field.range);
    *target = v;
  }
  void operator()(std::string* target) const { *target = value.as_string(what); }
  void operator()(std::vector<int>* target) const {
    std::vector<int> list;
    for (const Json& item : value.as_array(what))
      list.push_back(to_int(fmt::format("{}[{}]", what, list.size()), item, field.range));
    *target = std::move(list);
  }
  void operator()(std::vector<std::string>* target) const {
    std::vector<std::string> list;
    for (const Json& item : value.as_array(what))
      list.push_back(item.as_string(fmt::format("{}[{}]", what, list.size())));
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

}  // namespace

void assign(const Field& field, const Json& value) {
  std::visit(Assigner{field, value, field.name()}, field.ref);
}

Json value_from_text(const Field& field, const std::string& text) {
  const bool is_name = std::holds_alternative<std::string*>(field.ref) ||
                       std::holds_alternative<ChoiceRef>(field.ref);
  if (is_name && !text.starts_with('"')) return Json(text);
  if (std::holds_alternative<std::vector<std::string>*>(field.ref) && !text.starts_with('['))
    return Json(Json::Array{Json(text)});
  try {
    return parse_json(text, field.name(), ExitCode::kUsage);
  } catch (const Error&) {
    throw_error(ExitCode::kUsage, "{} = {}: not of the type {}", field.name(), text, field.type());
  }
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
