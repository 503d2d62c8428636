#include <cmath>

#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

struct Step {
  float lr, beta1, beta2, eps, keep, inverse1, inverse2;
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    update(float* master, float* m, float* v, const float* grad, T* param, const float* scale,
           std::int64_t packs, Step s) {
  const float factor = scale == nullptr ? 1.0F : *scale;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= packs || !isfinite(factor)) return;
  using F = Pack<float, N>;
  F master_p = reinterpret_cast<F*>(master)[i], m_p = reinterpret_cast<F*>(m)[i],
    v_p = reinterpret_cast<F*>(v)[i];
  const F grad_p = reinterpret_cast<const F*>(grad)[i];
  Pack<T, N> rounded;
  // Which product fuses with a sum is written out: layouts cut the state differently, so an element
  // may meet another N, and must get the same bits.
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = grad_p.v[j] * factor;
    m_p.v[j] = __fmaf_rn(m_p.v[j], s.beta1, __fmul_rn(g, 1.0F - s.beta1));
    v_p.v[j] = __fmaf_rn(v_p.v[j], s.beta2, __fmul_rn(__fmul_rn(g, g), 1.0F - s.beta2));
    const float root = sqrtf(__fmul_rn(v_p.v[j], s.inverse2));
    const float move = __fmul_rn(m_p.v[j], s.inverse1) / __fadd_rn(root, s.eps);
    master_p.v[j] = __fmaf_rn(master_p.v[j], s.keep, -__fmul_rn(move, s.lr));
    rounded.v[j] = from_float<T>(master_p.v[j]);
  }
  reinterpret_cast<F*>(master)[i] = master_p;
  reinterpret_cast<F*>(m)[i] = m_p;
  reinterpret_cast<F*>(v)[i] = v_p;
  reinterpret_cast<Pack<T, N>*>(param)[i] = rounded;
}

float inverse_correction(double beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - std::pow(beta, static_cast<double>(step))));
}

}  // namespace

void run(const ops::AdamW& op, CudaStream& stream) {
  const std::int64_t n = op.master.size();
  if (n == 0) return;
  const Step step{op.lr, op.beta1, op.beta2, op.eps,
                  static_cast<float>(1.0 - static_cast<double>(op.lr) * op.weight_decay),
                  inverse_correction(op.beta1, op.step), inverse_correction(op.beta2, op.step)};
  with_storage(op.param.dtype, "adamw", [&]<class T>() {
    with_pack<float>(
        n,
        [&]<int N>() {
          update<T, N><<<blocks_for(n / N, kThreads), kThreads, 0, stream.handle()>>>(
              op.master.as<float>(), op.m.as<float>(), op.v.as<float>(), op.grad.as<float>(),
              op.param.as<T>(), op.grad_scale.as<float>(), n / N, step);
        },
        op.master.data, op.m.data, op.v.data, op.grad.data, op.param.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("adamw");
}

}  // namespace tandem::cuda
