#include "tandem/base/units.h"

#include <fmt/core.h>

namespace tandem {

std::string time_text(double us, double scale_us) {
  if (scale_us >= 1e6) return fmt::format("{:.4g} s", us / 1e6);
  if (scale_us >= 1e3) return fmt::format("{:.4g} ms", us / 1e3);
  return fmt::format("{:.4g} \u00b5s", us);
}

std::string counted(std::int64_t count, std::string_view what) {
  const char* ending = what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : ending);
}

}  // namespace tandem
