#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// One block a row: gate columns, then up columns.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_fwd(const T* gate_up, const float* weights, T* act, int inner) {
  using P = Pack<T, N>;
  const std::int64_t row = blockIdx.x;
  const auto* gates = reinterpret_cast<const P*>(gate_up + row * 2 * inner);
  const auto* ups = reinterpret_cast<const P*>(gate_up + row * 2 * inner + inner);
  const float weight = weights == nullptr ? 1.0F : weights[row];
  for (int i = threadIdx.x; i < inner / N; i += kThreads) {
    const P g = gates[i], u = ups[i];
    P a;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gate = to_float(g.v[j]);
      a.v[j] = from_float<T>(gate * sigmoid(gate) * to_float(u.v[j]) * weight);
    }
    reinterpret_cast<P*>(act + row * inner)[i] = a;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_bwd(const T* d_act, const T* gate_up, const float* weights, T* d_gate_up, T* act,
               float* d_weights, int inner) {
  using P = Pack<T, N>;
  const std::int64_t row = blockIdx.x;
  const auto* gates = reinterpret_cast<const P*>(gate_up + row * 2 * inner);
  const auto* ups = reinterpret_cast<const P*>(gate_up + row * 2 * inner + inner);
  const auto* ds = reinterpret_cast<const P*>(d_act + row * inner);
  auto* d_gates = reinterpret_cast<P*>(d_gate_up + row * 2 * inner);
  auto* d_ups = reinterpret_cast<P*>(d_gate_up + row * 2 * inner + inner);
  const float weight = weights == nullptr ? 1.0F : weights[row];
  float dot = 0.0F;
  for (int i = threadIdx.x; i < inner / N; i += kThreads) {
    const P g = gates[i], u = ups[i], d = ds[i];
    P a, dg, du;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gate = to_float(g.v[j]), up = to_float(u.v[j]), s = sigmoid(gate);
      const float silu = gate * s, plain = silu * up, back = to_float(d.v[j]);
      dot += back * plain;
      a.v[j] = from_float<T>(plain * weight);
      du.v[j] = from_float<T>(back * weight * silu);
      dg.v[j] = from_float<T>(back * weight * up * s * (1.0F + gate * (1.0F - s)));
    }
    reinterpret_cast<P*>(act + row * inner)[i] = a;
    d_gates[i] = dg;
    d_ups[i] = du;
  }
  if (d_weights == nullptr) return;
  dot = block_sum<kThreads>(dot);
  if (threadIdx.x == 0) d_weights[row] = dot;
}

}  // namespace

void run(const ops::SwiGluFwd& op, CudaStream& stream) {
  if (op.act.rows == 0) return;
  with_storage(op.act.dtype, "swiglu", [&]<class T>() {
    with_pack<T>(
        op.act.cols,
        [&]<int N>() {
          swiglu_fwd<T, N><<<op.act.rows, kThreads, 0, stream.handle()>>>(
              op.gate_up.as<T>(), op.weights.as<float>(), op.act.as<T>(), op.act.cols);
        },
        op.gate_up.data, op.act.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("swiglu");
}

void run(const ops::SwiGluBwd& op, CudaStream& stream) {
  if (op.act.rows == 0) return;
  with_storage(op.act.dtype, "swiglu backward", [&]<class T>() {
    with_pack<T>(
        op.act.cols,
        [&]<int N>() {
          swiglu_bwd<T, N><<<op.act.rows, kThreads, 0, stream.handle()>>>(
              op.d_act.as<T>(), op.gate_up.as<T>(), op.weights.as<float>(), op.d_gate_up.as<T>(),
              op.act.as<T>(), op.d_weights.as<float>(), op.act.cols);
        },
        op.d_act.data, op.gate_up.data, op.d_gate_up.data, op.act.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("swiglu backward");
}

}  // namespace tandem::cuda
