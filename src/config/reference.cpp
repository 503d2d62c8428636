#include "tandem/config/reference.h"

#include "fields.h"
#include "values.h"

namespace tandem {
namespace {

std::string default_text(const config::Field& field) {
  JsonWriter writer;
  write_value(writer, field);
  return "`" + writer.str() + "`";
}

}  // namespace

std::string config_reference() {
  RunConfig defaults;
  std::string text;
  std::string_view section;
  for (const config::Field& field : config::fields(defaults)) {
    if (field.section != section) {
      section = field.section;
      text += fmt::format("{}### {}\n\n", text.empty() ? "" : "\n", section);
      text += "| key | type | range | unit | default | meaning |\n|---|---|---|---|---|---|\n";
    }
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", field.key, field.type(),
                        field.range.text(), field.unit, default_text(field), field.doc);
  }
  return text;
}

}  // namespace tandem
