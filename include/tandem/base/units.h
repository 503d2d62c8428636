// Units that people read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;  // bytes

// "1.5 ms": in the unit that suits scale_us.
std::string time_text(double us, double scale_us);

// "1 rank", "4 ranks", "2 micro-batches".
std::string counted(std::int64_t count, std::string_view what);

}  // namespace tandem
