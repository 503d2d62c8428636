#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

Vec sigmoid(Vec x) {
  return 1.0F / (1.0F + exp(-x));
}

template <class T>
void backward_row(const ops::SwiGluBwd& op, std::int64_t r) {
  const std::int64_t n = op.d_act.cols;
  const float weight = op.weights.data == nullptr ? 1.0F : op.weights.as<float>()[r];
  const T* gate = op.gate_up.as<T>() + r * 2 * n;
  const T* d_act = op.d_act.as<T>() + r * n;
  T* d_gate = op.d_gate_up.as<T>() + r * 2 * n;
  T* act = op.act.as<T>() + r * n;
  Vec d_weight{};
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    const Vec g = load(gate + i, lanes), up = load(gate + n + i, lanes);
    const Vec d = load(d_act + i, lanes), s = sigmoid(g), silu = g * s, d_up = d * weight;
    d_weight += d * silu * up;
    store(act + i, silu * up * weight, lanes);
    store(d_gate + i, d_up * up * (s + silu * (1.0F - s)), lanes);
    store(d_gate + n + i, d_up * silu, lanes);
  });
  if (op.weights.data != nullptr) op.d_weights.as<float>()[r] = sum(d_weight);
}

void check_weights(const View& weights, std::int64_t rows, const char* what) {
  if (weights.data != nullptr) TANDEM_CHECK(weights.size() == rows, "{}", what);
}

constexpr std::int64_t kElementCost = 8;  // an exponential and a division beside the loads

}  // namespace

void run(const ops::SwiGluFwd& op, Workers& workers) {
  const std::int64_t rows = op.act.rows, n = op.act.cols;
  expect(op.gate_up, op.act.dtype, rows, 2 * n, "swiglu: gate_up");
  check_weights(op.weights, rows, "swiglu: weights");
  with_element(op.act, "swiglu: act", [&]<class T>(Tag<T>) {
    for_rows(workers, rows, kElementCost * n, [&](std::int64_t r) {
      const float weight = op.weights.data == nullptr ? 1.0F : op.weights.as<float>()[r];
      const T* gate = op.gate_up.as<T>() + r * 2 * n;
      for_lanes(n, [&](std::int64_t i, auto lanes) {
        const Vec g = load(gate + i, lanes);
        store(op.act.as<T>() + r * n + i, g * sigmoid(g) * load(gate + n + i, lanes) * weight,
              lanes);
      });
    });
  });
}

void run(const ops::SwiGluBwd& op, Workers& workers) {
  const std::int64_t rows = op.d_act.rows, n = op.d_act.cols;
  expect(op.gate_up, op.d_act.dtype, rows, 2 * n, "swiglu backward: gate_up");
  expect(op.d_gate_up, op.d_act.dtype, rows, 2 * n, "swiglu backward: d_gate_up");
  expect(op.act, op.d_act.dtype, rows, n, "swiglu backward: act");
  check_weights(op.weights, rows, "swiglu backward: weights");
  if (op.weights.data != nullptr)
    TANDEM_CHECK(op.d_weights.size() == rows, "swiglu backward: d_weights");
  with_element(op.d_act, "swiglu backward: d_act", [&]<class T>(Tag<T>) {
    for_rows(workers, rows, kElementCost * n, [&](std::int64_t r) { backward_row<T>(op, r); });
  });
}

}  // namespace tandem::cpu
