// fp16 to fp32 and back, a register at a time: with the processor's own conversions where this
// build may use them, else with integers. Both round to nearest even, know subnormals, and give
// infinity from 65520 on: loss scaling notices overflow by that.
#pragma once

#include <bit>
#include <cstring>

#include "element.h"
#include "vec.h"
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace tandem::cpu {

namespace portable {

inline Vec widen(HalfVec half) {
  const IntVec bits = __builtin_convertvector(half, IntVec);
  const IntVec magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  // The exponents' biases differ by 112. As a product this makes subnormals normal, too.
  const auto scaled = std::bit_cast<IntVec>(std::bit_cast<Vec>(magnitude) * 0x1p112F);
  const IntVec finite_or_not = magnitude >= (0x7c00U << 13) ? scaled | 0x7f800000U : scaled;
  return std::bit_cast<Vec>(finite_or_not | sign);
}

inline HalfVec narrow(Vec v) {
  constexpr std::uint32_t kLeastNormal = 0x38800000U;  // 2^-14
  constexpr std::uint32_t kTooLarge = 0x47800000U;     // 2^16; what rounds to that carries over
  constexpr std::uint32_t kRebias = (127U - 15U) << 23;
  const auto u = std::bit_cast<IntVec>(v);
  const IntVec sign = u & 0x80000000U, magnitude = u ^ sign;
  const IntVec normal = (magnitude - kRebias + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // 0.5 has ulp 2^-24, fp16's smallest step: adding it rounds, the low bits are the result.
  const auto rounded = std::bit_cast<IntVec>(std::bit_cast<Vec>(magnitude) + 0.5F);
  const IntVec subnormal = rounded - std::bit_cast<std::uint32_t>(0.5F);
  IntVec half = magnitude < kLeastNormal ? subnormal : normal;
  half = magnitude >= kTooLarge ? IntVec{} + 0x7c00U : half;
  half = magnitude > 0x7f800000U ? IntVec{} + 0x7e00U : half;
  return __builtin_convertvector(half | (sign >> 16), HalfVec);
}

}  // namespace portable

// AVX-512: the forms with a mask, because GCC 12 warns of the others' undefined operand.
inline Vec widen(const F16* p) {
  HalfVec half;
  std::memcpy(&half, p, sizeof half);
#if defined(__AVX512F__)
  return std::bit_cast<Vec>(_mm512_maskz_cvtph_ps(0xFFFF, std::bit_cast<__m256i>(half)));
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  return std::bit_cast<Vec>(_mm256_cvtph_ps(std::bit_cast<__m128i>(half)));
#else
  return portable::widen(half);
#endif
}

inline void narrow(F16* p, Vec v) {
#if defined(__AVX512F__)
  const auto half =
      _mm512_maskz_cvtps_ph(0xFFFF, std::bit_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  const auto half = _mm256_cvtps_ph(std::bit_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT);
#else
  const HalfVec half = portable::narrow(v);
#endif
  std::memcpy(p, &half, sizeof half);
}

template <>
inline F16 from_float<F16>(float x) {
  F16 lanes[kLanes];
  narrow(lanes, splat(x));
  return lanes[0];
}

}  // namespace tandem::cpu
