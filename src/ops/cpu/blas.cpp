#include "blas.h"

#include <cblas.h>

#include "matmul.h"
#include "simd.h"

namespace tandem::cpu {
namespace {

// Scales c by beta: a product over nothing.
void scale(std::int64_t m, std::int64_t n, float beta, Panel c) {
  if (beta == 1) return;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float& x = c.data[i * c.stride + j];
      x = beta == 0 ? 0 : beta * x;
    }
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
           Panel a, Panel b, float beta, Panel c) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return scale(m, n, beta, c);
  if constexpr (kWideVectors) return matmul(trans_a, trans_b, m, n, k, alpha, a, b, beta, c);
  use_one_blas_thread();
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
              trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a.data, static_cast<blasint>(a.stride), b.data,
              static_cast<blasint>(b.stride), beta, c.data, static_cast<blasint>(c.stride));
}

}  // namespace tandem::cpu
