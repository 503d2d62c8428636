#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

void loss_row(const ops::CrossEntropy& op, std::int64_t t) {
  const std::int64_t n = op.logits.cols;
  float* x = op.logits.as<float>() + t * n;
  const std::int32_t label = op.labels.as<std::int32_t>()[t];
  const float largest = max_of(x, n), at_label = x[label];
  struct Exponentials;
  float* e = op.d_logits.data == op.logits.data ? x : scratch<Exponentials>(n);
  const float total = exp_of(x, largest, e, n);
  op.loss.as<float>()[t] = std::log(total) + (largest - at_label);
  if (op.d_logits.data == nullptr) return;
  const float factor = op.scale / total, e_label = e[label];
  with_element(op.d_logits, "cross entropy: d_logits", [&]<class T>(Tag<T>) {
    T* d = op.d_logits.as<T>() + t * n;
    for_lanes(n,
              [&](std::int64_t i, auto lanes) { store(d + i, load(e + i, lanes) * factor, lanes); });
    d[label] = from_float<T>(e_label * factor - op.scale);
  });
}

}  // namespace

void run(const ops::CrossEntropy& op, Workers& workers) {
  const std::int64_t rows = op.logits.rows, n = op.logits.cols;
  expect(op.logits, DType::kF32, rows, n, "cross entropy: logits");
  TANDEM_CHECK(op.labels.size() == rows, "cross entropy: labels");
  TANDEM_CHECK(op.loss.size() == rows, "cross entropy: loss");
  if (op.d_logits.data != nullptr)
    expect(op.d_logits, op.d_logits.dtype, rows, n, "cross entropy: d_logits");
  check_ids(op.labels, n, "labels");
  for_rows(workers, rows, 8 * n, [&](std::int64_t t) { loss_row(op, t); });
}

}  // namespace tandem::cpu
