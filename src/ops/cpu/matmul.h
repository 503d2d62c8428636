// Our own single-precision matrix product for processors with wide vectors. Each element of c is
// summed over k in one fixed order, whatever the sizes of m and n and wherever it lies: cutting c
// into rectangles never changes a bit of it.
#pragma once

#include "blas.h"

namespace tandem::cpu {

// As sgemm() in blas.h, for m, n, k >= 1.
void matmul(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            Panel a, Panel b, bool accumulate, Panel c);

}  // namespace tandem::cpu
