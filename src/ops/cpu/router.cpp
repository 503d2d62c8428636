// The router of a mixture-of-experts layer: choice, gradient and the two auxiliary losses.
#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

// The topk largest of p, descending; of equals the lower index first.
void choose(const float* p, std::int64_t experts, std::int32_t* chosen, std::int64_t topk) {
  std::int64_t kept = 0;  // chosen[0 .. kept) is sorted
  for (std::int64_t e = 0; e < experts; ++e) {
    std::int64_t at = kept;
    while (at > 0 && p[e] > p[chosen[at - 1]]) --at;
    if (at == topk) continue;
    kept = std::min(kept + 1, topk);
    for (std::int64_t j = kept - 1; j > at; --j) chosen[j] = chosen[j - 1];
    chosen[at] = static_cast<std::int32_t>(e);
  }
}

void route_row(const ops::RouterFwd& op, std::int64_t t) {
  const std::int64_t experts = op.logits.cols, topk = op.chosen.cols;
  const float* logits = op.logits.as<float>() + t * experts;
  float* probs = op.probs.as<float>() + t * experts;
  const float largest = max_of(logits, experts);
  const float total = exp_of(logits, largest, probs, experts);
  op.z.as<float>()[t] = largest + std::log(total);
  for (std::int64_t e = 0; e < experts; ++e) probs[e] /= total;
  std::int32_t* chosen = op.chosen.as<std::int32_t>() + t * topk;
  float* weights = op.weights.as<float>() + t * topk;
  choose(probs, experts, chosen, topk);
  float mass = 0;
  for (std::int64_t j = 0; j < topk; ++j) mass += probs[chosen[j]];
  for (std::int64_t j = 0; j < topk; ++j)
    weights[j] = op.renormalise ? probs[chosen[j]] / mass : probs[chosen[j]];
}

void check_topk(const View& probs, const View& chosen, const View& weights, const char* what) {
  expect(chosen, DType::kI32, probs.rows, chosen.cols, what);
  expect(weights, DType::kF32, probs.rows, chosen.cols, what);
  TANDEM_CHECK(chosen.cols <= probs.cols, "{}: topk is at most the number of experts", what);
}

// d_probs of the row, then through the softmax.
void route_row_backward(const ops::RouterBwd& op, std::int64_t t) {
  const std::int64_t experts = op.probs.cols, topk = op.chosen.cols;
  const float* p = op.probs.as<float>() + t * experts;
  const std::int32_t* chosen = op.chosen.as<std::int32_t>() + t * topk;
  const float* w = op.weights.as<float>() + t * topk;
  const float* d_w = op.d_weights.as<float>() + t * topk;
  float* d = op.d_logits.as<float>() + t * experts;
  const float* load_of = op.load.as<float>();
  for (std::int64_t e = 0; e < experts; ++e)
    d[e] = load_of != nullptr ? op.aux_scale * load_of[e] : 0.0F;
  float mass = 0, mean = 0;
  for (std::int64_t j = 0; j < topk; ++j) {
    mass += p[chosen[j]];
    mean += d_w[j] * w[j];
  }
  for (std::int64_t j = 0; j < topk; ++j)
    d[chosen[j]] += op.renormalise ? (d_w[j] - mean) / mass : d_w[j];
  float inner = 0;
  for (std::int64_t e = 0; e < experts; ++e) inner += p[e] * d[e];
  const float from_z = op.z_scale == 0 ? 0.0F : op.z_scale * 2 * op.z.as<float>()[t];
  for (std::int64_t e = 0; e < experts; ++e) d[e] = p[e] * (d[e] - inner + from_z);
}

}  // namespace

void run(const ops::RouterFwd& op, Workers& workers) {
  expect(op.logits, DType::kF32, op.logits.rows, op.logits.cols, "router: logits");
  expect(op.probs, DType::kF32, op.logits.rows, op.logits.cols, "router: probs");
  check_topk(op.probs, op.chosen, op.weights, "router");
  TANDEM_CHECK(op.z.size() == op.logits.rows, "router: z");
  for_rows(workers, op.logits.rows, 4 * op.logits.cols + 64,
           [&](std::int64_t t) { route_row(op, t); });
}

void run(const ops::RouterBwd& op, Workers& workers) {
  expect(op.d_logits, DType::kF32, op.probs.rows, op.probs.cols, "router backward: d_logits");
  expect(op.d_weights, DType::kF32, op.probs.rows, op.chosen.cols, "router backward: d_weights");
  check_topk(op.probs, op.chosen, op.weights, "router backward");
  check_ids(op.chosen, op.probs.cols, "router backward: chosen");
  for_rows(workers, op.probs.rows, 4 * op.probs.cols + 64,
           [&](std::int64_t t) { route_row_backward(op, t); });
}

void run(const ops::RouterLoss& op, Workers&) {
  const std::int64_t experts = op.probs.cols;
  TANDEM_CHECK(op.load.size() == experts, "router loss: load");
  TANDEM_CHECK(op.prob_sum.size() == experts, "router loss: prob_sum");
  TANDEM_CHECK(op.out.size() == 2, "router loss: out");
  struct Sums;
  double* sums = scratch<Sums, double>(experts);
  float* prob_sum = op.prob_sum.as<float>();
  for (std::int64_t e = 0; e < experts; ++e) sums[e] = op.accumulate ? prob_sum[e] : 0.0;
  double z_square = 0;
  for (std::int64_t t = 0; t < op.probs.rows; ++t) {
    const float* p = op.probs.as<float>() + t * experts;
    for (std::int64_t e = 0; e < experts; ++e) sums[e] += p[e];
    const double z = op.z.as<float>()[t];
    z_square += z * z;
  }
  double balance = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    balance += op.load.as<float>()[e] * sums[e];
    prob_sum[e] = static_cast<float>(sums[e]);
  }
  op.out.as<float>()[0] = static_cast<float>(balance);
  op.out.as<float>()[1] = static_cast<float>(z_square);
}

}  // namespace tandem::cpu
