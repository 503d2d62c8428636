// Vec: one register of floats, as the compiler's portable vector type, and what the kernels need of
// it.
// Tails run through the same operations as full vectors, so a value does not depend on where in a
// loop it stood, unless two products are added: either may fuse with the sum. Where that matters,
// fusing is off (CMakeLists.txt). Loops are written as for_lanes(n, [&](i, lanes) {...}).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "half.h"

namespace tandem::cpu {

using AllLanes = std::integral_constant<int, kLanes>;

// Calls body(i, AllLanes{}) for every full vector of [0, n), then body(i, count) for the tail.
template <class Body>
void for_lanes(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, AllLanes{});
  if (i < n) body(i, static_cast<int>(n - i));
}

inline Vec widen(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline Vec widen(const BF16* p) {
  HalfVec half;
  std::memcpy(&half, p, sizeof half);
  return std::bit_cast<Vec>(__builtin_convertvector(half, IntVec) << 16);
}

inline void narrow(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}

inline void narrow(BF16* p, Vec v) {
  const auto u = std::bit_cast<IntVec>(v);
  const IntVec rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  const IntVec bits = v != v ? ((u >> 16) | 0x40) : rounded;
  const HalfVec half = __builtin_convertvector(bits, HalfVec);
  std::memcpy(p, &half, sizeof half);
}

// Missing lanes of a tail read as `fill`.
template <class T>
Vec load(const T* p, AllLanes, float = 0) {
  return widen(p);
}

template <class T>
Vec load(const T* p, int lanes, float fill = 0) {
  T buffer[kLanes];
  std::fill_n(buffer, kLanes, from_float<T>(fill));
  for (int l = 0; l < kLanes; ++l)  // a fixed trip count: becomes one masked load
    if (l < lanes) buffer[l] = p[l];
  return widen(buffer);
}

template <class T>
void store(T* p, Vec v, AllLanes) {
  narrow(p, v);
}

template <class T>
void store(T* p, Vec v, int lanes) {
  T buffer[kLanes];
  narrow(buffer, v);
  for (int l = 0; l < kLanes; ++l)
    if (l < lanes) p[l] = buffer[l];
}

inline Vec max(Vec a, Vec b) {
  return a > b ? a : b;
}

namespace detail {

// Lane i of the result is lane (i + Shift) % kLanes.
template <int Shift, int... I>
Vec rotate(Vec v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, ((I + Shift) % kLanes)...);
}

// combine over all lanes, by halves: one fixed tree.
template <int Shift = kLanes / 2, class Combine>
float fold(Vec v, Combine combine) {
  if constexpr (Shift == 0) {
    return v[0];
  } else {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
    return fold<Shift / 2>(combine(v, rotate<Shift>(v, kAll)), combine);
  }
}

}  // namespace detail

inline float sum(Vec v) {
  return detail::fold(v, [](Vec a, Vec b) { return a + b; });
}

inline float max(Vec v) {
  return detail::fold(v, [](Vec a, Vec b) { return max(a, b); });
}

// e^x within 2 ulp; below -87.3 (results near the smallest normal number) 0, NaN stays NaN.
// x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + r + r^2 q(r), q minimax of degree 4.
inline Vec exp(Vec x) {
  constexpr float kHigh = 88.722839F, kLow = -87.3F, kRound = 12582912.0F;  // 1.5 * 2^23
  const Vec high = splat(kHigh), low = splat(kLow);
  Vec c = x > high ? high : x;
  c = c < low ? low : c;
  const Vec shifted = c * 1.44269504F + kRound;  // its low mantissa bits are round(x / ln2)
  const Vec n = shifted - kRound;
  const Vec r = (c - n * 0.693359375F) - n * -2.12194440e-4F;
  const Vec q =
      (((r * 1.38144666e-3F + 8.36878042e-3F) * r + 4.16683942e-2F) * r + 1.66665201e-1F) * r +
      4.99999934e-1F;
  const Vec p = (q * r) * r + r + 1.0F;
  const auto bits = std::bit_cast<IntVec>(p) + (std::bit_cast<IntVec>(shifted) << 23);
  Vec y = std::bit_cast<Vec>(bits);
  y = x > high ? splat(std::numeric_limits<float>::infinity()) : y;
  return x < low ? Vec{} : y;
}

inline Vec sqrt(Vec v) {
  float lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  for (float& x : lane) x = std::sqrt(x);
  std::memcpy(&v, lane, sizeof v);
  return v;
}

// The largest of x[0 .. n), -inf for none.
template <class T>
float max_of(const T* x, std::int64_t n) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Vec best = splat(kNone);
  for_lanes(n, [&](std::int64_t i, auto lanes) { best = max(load(x + i, lanes, kNone), best); });
  return max(best);
}

// y = e^(x - shift); returns the sum of y. y may be x.
inline float exp_of(const float* x, float shift, float* y, std::int64_t n) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Vec total{};
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    const Vec e = exp(load(x + i, lanes, kNone) - shift);
    total += e;
    store(y + i, e, lanes);
  });
  return sum(total);
}

}  // namespace tandem::cpu
