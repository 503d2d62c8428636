// Single-precision matrix products on the calling thread.
#pragma once

#include <cstdint>

namespace tandem::cpu {

// A row-major fp32 matrix in memory, `stride` floats from row to row.
struct Panel {
  float* data;
  std::int64_t stride;
};

// c[m, n] = alpha op(a) op(b) (+ c when accumulating).  a is [m, k] or, with trans_a, [k, m]; b
// likewise. Without accumulate c is not read. Any size may be 0.
void sgemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           Panel a, Panel b, bool accumulate, Panel c);

}  // namespace tandem::cpu
