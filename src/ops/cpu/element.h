// Storage elements of the CPU kernels: float, BF16 and F16, and the step from a View's dtype to a
// type. Arithmetic is fp32 everywhere; 16-bit values are widened exactly and rounded to nearest
// even, what is too large for them to infinity.
#pragma once

#include <bit>
#include <cstdint>

#include "tandem/base/dtype.h"
#include "tandem/base/error.h"

namespace tandem::cpu {

struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float to_float(float x) {
  return x;
}
inline float to_float(BF16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BF16 from_float<BF16>(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>((u >> 16) | 0x40)};  // stays a quiet NaN
  return {static_cast<std::uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

template <class T>
struct Tag {
  using type = T;
};

// Calls body(Tag<float>{}), body(Tag<BF16>{}) or body(Tag<F16>{}). `what` names the tensor for the
// error.
template <class Body>
void with_element(const View& view, const char* what, Body&& body) {
  switch (view.dtype) {
    case DType::kF32:
      return body(Tag<float>{});
    case DType::kBF16:
      return body(Tag<BF16>{});
    case DType::kF16:
      return body(Tag<F16>{});
    default:
      throw_error(ExitCode::kInternal, "{}: dtype {} is neither fp32, bf16 nor fp16", what,
                  name_of(view.dtype));
  }
}

inline void expect(const View& view, DType dtype, std::int64_t rows, std::int64_t cols,
                   const char* what) {
  TANDEM_CHECK(view.rows == rows, "{}: rows", what);
  TANDEM_CHECK(view.cols == cols, "{}: columns", what);
  TANDEM_CHECK(view.dtype == dtype, "{}: dtype", what);
}

// For vectors, whichever way they lie.
inline void expect_vector(const View& view, DType dtype, std::int64_t size, const char* what) {
  TANDEM_CHECK(view.size() == size, "{}: size", what);
  TANDEM_CHECK(view.dtype == dtype, "{}: dtype", what);
}

// Throws Error(kBadInput) naming the first of the i32 `ids` outside [0, limit) and its position.
void check_ids(const View& ids, std::int64_t limit, const char* what);

}  // namespace tandem::cpu
