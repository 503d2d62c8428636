// One field and its JSON value, both ways.
#pragma once

#include <string>

#include "fields.h"
#include "tandem/base/json.h"
#include "tandem/base/json_writer.h"

namespace tandem::config {

// Stores `value` in the field. Throws Error that names the key, the value, the rule and the way out
// on a wrong type, a number outside the field's range, or an unknown name; the field is unchanged
// then.
void assign(const Field& field, const Json& value);

// What the command line means by `text`: JSON, or, where it is none, bare text for strings, names
// and lists of one string. Throws Error on text that is no JSON where JSON is needed. The type of
// what is JSON is left to assign().
Json value_from_text(const Field& field, const std::string& text);

void write_value(JsonWriter& writer, const Field& field);

// "" if a number of the field lies in its range, else the violation.
std::string range_violation(const Field& field);

}  // namespace tandem::config
