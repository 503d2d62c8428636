// Units that people read.
#pragma once

namespace tandem {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;  // bytes

}  // namespace tandem
