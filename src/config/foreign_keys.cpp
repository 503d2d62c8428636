#include "foreign_keys.h"

#include <fmt/core.h>

#include <algorithm>

#include "foreign_notes.h"

namespace tandem::config {

std::vector<ForeignKey> foreign_keys() {
  const auto model = foreign_model_keys(), run = foreign_run_keys();
  std::vector<ForeignKey> all(model.begin(), model.end());
  all.insert(all.end(), run.begin(), run.end());
  return all;
}

std::string foreign_hint(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const ForeignKey& known : foreign_keys()) {
    if (known.theirs != name) continue;
    if (known.ours.empty()) return fmt::format("not supported: {}", known.note);
    const std::string note = known.note.empty() ? "" : fmt::format(" ({})", known.note);
    if (known.ours == kAlways) return "always on here" + note;
    return fmt::format("here it is {}{}", known.ours, note);
  }
  return {};
}

}  // namespace tandem::config
