#include "amounts.h"

#include <fmt/core.h>

namespace tandem {

std::string shortened(double value, std::initializer_list<const char*> suffixes) {
  const auto* suffix = suffixes.begin();
  // Four digits are shown: from here on they would round up to 1000.
  constexpr double kNext = 999.95;
  for (; value >= kNext && suffix + 1 != suffixes.end(); ++suffix) value /= 1000.0;
  return fmt::format("{:.4g}{}{}", value, **suffix == '\0' ? "" : " ", *suffix);
}

std::string parameters(std::int64_t count) {
  return shortened(static_cast<double>(count), {"", "K", "M", "B", "T"});
}

}  // namespace tandem
