#include <cmath>

#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

// The scalars of one step, rounded to fp32 once.
struct Step {
  float scale, beta1, beta2, rest1, rest2, lr, inverse1, inverse2, eps, keep;
  explicit Step(const ops::AdamW& op)
      : scale(op.grad_scale.data == nullptr ? 1.0F : *op.grad_scale.as<float>()),
        beta1(op.beta1),
        beta2(op.beta2),
        rest1(1.0F - op.beta1),
        rest2(1.0F - op.beta2),
        lr(op.lr),
        inverse1(inverse_correction(op.beta1, op.step)),
        inverse2(inverse_correction(op.beta2, op.step)),
        eps(op.eps),
        keep(static_cast<float>(1.0 - static_cast<double>(op.lr) * op.weight_decay)) {}

  static float inverse_correction(double beta, std::int64_t step) {
    return static_cast<float>(1.0 / (1.0 - std::pow(beta, static_cast<double>(step))));
  }
};

template <class T>
void update(const ops::AdamW& op, const Step& step, std::int64_t begin, std::int64_t end) {
  float* master = op.master.as<float>() + begin;
  float* m = op.m.as<float>() + begin;
  float* v = op.v.as<float>() + begin;
  const float* grad = op.grad.as<float>() + begin;
  T* param = op.param.as<T>() + begin;
  for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
    const Vec g = load(grad + i, lanes) * step.scale;
    const Vec m1 = load(m + i, lanes) * step.beta1 + g * step.rest1;
    const Vec v1 = load(v + i, lanes) * step.beta2 + g * g * step.rest2;
    const Vec move = m1 * step.inverse1 / (sqrt(v1 * step.inverse2) + step.eps);
    const Vec next = load(master + i, lanes) * step.keep - move * step.lr;
    store(m + i, m1, lanes);
    store(v + i, v1, lanes);
    store(master + i, next, lanes);
    store(param + i, next, lanes);
  });
}

}  // namespace

void run(const ops::AdamW& op, Workers& workers) {
  const std::int64_t n = op.master.size();
  for (const View* view : {&op.m, &op.v, &op.grad, &op.param})
    TANDEM_CHECK(view->size() == n, "adamw: m, v, grad and param are as long as master");
  for (const View* view : {&op.master, &op.m, &op.v, &op.grad})
    TANDEM_CHECK(view->dtype == DType::kF32, "adamw: state and gradient are fp32");
  TANDEM_CHECK(op.step >= 1, "adamw: steps count from 1");
  const Step step(op);
  if (!std::isfinite(step.scale)) return;
  with_element(op.param, "adamw: param", [&]<class T>(Tag<T>) {
    for_blocks(workers, n,
               [&](std::int64_t begin, std::int64_t end) { update<T>(op, step, begin, end); });
  });
}

}  // namespace tandem::cpu
