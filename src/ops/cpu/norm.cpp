#include "norm_row.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {

void run(const ops::RmsNormFwd& op, Workers& workers) {
  const std::int64_t rows = op.x.rows, n = op.x.cols;
  expect(op.y, op.x.dtype, rows, n, "rms norm: y");
  expect_vector(op.w, op.x.dtype, n, "rms norm: w");
  TANDEM_CHECK(op.rstd.size() == rows, "rms norm: rstd");
  with_element(op.x, "rms norm: x", [&]<class T>(Tag<T>) {
    for_rows(workers, rows, 2 * n, [&](std::int64_t t) {
      const T* x = op.x.as<T>() + t * n;
      const float rstd = inverse_rms(x, n, op.eps);
      op.rstd.as<float>()[t] = rstd;
      apply_norm(x, op.w.as<T>(), rstd, op.y.as<T>() + t * n, n);
    });
  });
}

void run(const ops::RmsNormApply& op, Workers& workers) {
  const std::int64_t rows = op.x.rows, n = op.x.cols;
  expect(op.y, op.x.dtype, rows, n, "rms norm: y");
  expect_vector(op.w, op.x.dtype, n, "rms norm: w");
  TANDEM_CHECK(op.rstd.size() == rows, "rms norm: rstd");
  with_element(op.x, "rms norm: x", [&]<class T>(Tag<T>) {
    for_rows(workers, rows, n, [&](std::int64_t t) {
      apply_norm(op.x.as<T>() + t * n, op.w.as<T>(), op.rstd.as<float>()[t], op.y.as<T>() + t * n,
                 n);
    });
  });
}

void run(const ops::RmsNormBwd& op, Workers& workers) {
  const std::int64_t rows = op.x.rows, n = op.x.cols;
  expect(op.d_y, op.x.dtype, rows, n, "rms norm backward: d_y");
  expect(op.d_x, op.x.dtype, rows, n, "rms norm backward: d_x");
  expect_vector(op.w, op.x.dtype, n, "rms norm backward: w");
  expect_vector(op.d_w, DType::kF32, n, "rms norm backward: d_w");
  TANDEM_CHECK(op.rstd.size() == rows, "rms norm backward: rstd");
  with_element(op.x, "rms norm backward: x", [&]<class T>(Tag<T>) {
    const T* add = op.add.as<T>();
    sum_over_rows(workers, rows, n, op.d_w.as<float>(), [&](std::int64_t t, float* d_w) {
      norm_backward(op.d_y.as<T>() + t * n, op.x.as<T>() + t * n, op.w.as<T>(),
                    op.rstd.as<float>()[t], add == nullptr ? nullptr : add + t * n,
                    op.d_x.as<T>() + t * n, d_w, n);
    });
  });
}

}  // namespace tandem::cpu
