// Vec: one register of floats, as the compiler's portable vector type. What the kernels do with it
// is in simd.h.
#pragma once

#include <cstdint>

namespace tandem::cpu {

// The registers of the processor this build is for.
#if defined(__AVX512F__)
inline constexpr int kVecBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kVecBytes = 32;
#else
inline constexpr int kVecBytes = 16;
#endif
inline constexpr int kLanes = kVecBytes / 4;

using Vec = float __attribute__((vector_size(kVecBytes)));
using IntVec = std::uint32_t __attribute__((vector_size(kVecBytes)));
using HalfVec = std::uint16_t __attribute__((vector_size(kVecBytes / 2)));

inline Vec splat(float x) {
  return x - Vec{};
}

}  // namespace tandem::cpu
