// Transposing squares of kLanes by kLanes floats in registers.
#pragma once

#include <utility>

#include "simd.h"

namespace tandem::cpu {

namespace detail {

template <int... I>
Vec interleave_low(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (I / 2 + (I % 2) * kLanes)...);
}

template <int... I>
Vec interleave_high(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (kLanes / 2 + I / 2 + (I % 2) * kLanes)...);
}

}  // namespace detail

// Interleaving the halves of the list of rows log2(kLanes) times exchanges rows and columns.
inline void transpose(Vec (&rows)[kLanes]) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
#pragma GCC unroll 4
  for (int span = kLanes; span > 1; span /= 2) {
    Vec next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = detail::interleave_low(rows[i], rows[i + kLanes / 2], kAll);
      next[2 * i + 1] = detail::interleave_high(rows[i], rows[i + kLanes / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace tandem::cpu
