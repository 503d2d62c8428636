#include "amounts.h"

#include <fmt/core.h>

namespace tandem {

std::string shortened(double value, std::initializer_list<const char*> suffixes) {
  const auto* suffix = suffixes.begin();
  for (; value >= 1000.0 && suffix + 1 != suffixes.end(); ++suffix) value /= 1000.0;
  return fmt::format("{:.4g} {}", value, *suffix);
}

std::string parameters(std::int64_t count) {
  return shortened(static_cast<double>(count), {"", "K", "M", "B", "T"});
}

}  // namespace tandem
