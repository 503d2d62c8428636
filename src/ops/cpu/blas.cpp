#include "blas.h"

#include <cblas.h>

#include "matmul.h"
#include "simd.h"

namespace tandem::cpu {
namespace {

// A product over nothing.
void clear(std::int64_t m, std::int64_t n, Panel c) {
  for (std::int64_t i = 0; i < m; ++i) std::fill_n(c.data + i * c.stride, n, 0.0F);
}

void use_one_blas_thread() {
  // Workers splits the work; threads inside the library would compete with it and could make
  // results depend on their number.
  [[maybe_unused]] static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
}

}  // namespace

// A build for one processor uses our own product: it is as fast there, reproducible under any cut,
// and does not depend on the library knowing the processor (an unknown one gets its slowest code).
// A portable build leaves the choice of instructions to the library.
void sgemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           Panel a, Panel b, bool accumulate, Panel c) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return accumulate ? void() : clear(m, n, c);
  constexpr bool kWideVectors = kVecBytes >= 32;
  if constexpr (kWideVectors) return matmul(trans_a, trans_b, m, n, k, alpha, a, b, accumulate, c);
  use_one_blas_thread();
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
              trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a.data, static_cast<blasint>(a.stride), b.data,
              static_cast<blasint>(b.stride), accumulate ? 1.0F : 0.0F, c.data,
              static_cast<blasint>(c.stride));
}

}  // namespace tandem::cpu
