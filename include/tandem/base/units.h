// Units that people read.
#pragma once

#include <string>

namespace tandem {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;  // bytes

// "1.5 ms": in the unit that suits scale_us.
std::string time_text(double us, double scale_us);

}  // namespace tandem
