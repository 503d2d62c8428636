#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// Threads that share a row: a warp where it is short, else the block.
template <int RowThreads>
struct RowOf {
  std::int64_t row;
  int lane;
  __device__ RowOf()
      : row(std::int64_t{blockIdx.x} * (kThreads / RowThreads) + threadIdx.x / RowThreads),
        lane(threadIdx.x % RowThreads) {}
};

template <int RowThreads>
__device__ __forceinline__ float row_sum(float x) {
  if constexpr (RowThreads == kWarp) {
    return warp_sum(x);
  } else {
    return block_sum<RowThreads>(x);
  }
}

// gate_up: gate columns, then up columns.
template <class T, int N, int RowThreads>
__global__ void __launch_bounds__(kThreads)
    swiglu_fwd(const T* gate_up, const float* weights, T* act, std::int64_t rows, int inner) {
  using P = Pack<T, N>;
  const RowOf<RowThreads> at;
  if (at.row >= rows) return;
  const auto* gates = reinterpret_cast<const P*>(gate_up + at.row * 2 * inner);
  const auto* ups = reinterpret_cast<const P*>(gate_up + at.row * 2 * inner + inner);
  const float weight = weights == nullptr ? 1.0F : weights[at.row];
  for (int i = at.lane; i < inner / N; i += RowThreads) {
    const P g = gates[i], u = ups[i];
    P a;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gate = to_float(g.v[j]);
      a.v[j] = from_float<T>(gate * sigmoid(gate) * to_float(u.v[j]) * weight);
    }
    reinterpret_cast<P*>(act + at.row * inner)[i] = a;
  }
}

template <class T, int N, int RowThreads>
__global__ void __launch_bounds__(kThreads)
    swiglu_bwd(const T* d_act, const T* gate_up, const float* weights, T* d_gate_up, T* act,
               float* d_weights, std::int64_t rows, int inner) {
  using P = Pack<T, N>;
  const RowOf<RowThreads> at;
  if (at.row >= rows) return;   // whole warps, and no block has rows for some warps and a block sum
  const auto* gates = reinterpret_cast<const P*>(gate_up + at.row * 2 * inner);
  const auto* ups = reinterpret_cast<const P*>(gate_up + at.row * 2 * inner + inner);
  const auto* ds = reinterpret_cast<const P*>(d_act + at.row * inner);
  auto* d_gates = reinterpret_cast<P*>(d_gate_up + at.row * 2 * inner);
  auto* d_ups = reinterpret_cast<P*>(d_gate_up + at.row * 2 * inner + inner);
  const float weight = weights == nullptr ? 1.0F : weights[at.row];
  float dot = 0.0F;
  for (int i = at.lane; i < inner / N; i += RowThreads) {
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
    reinterpret_cast<P*>(act + at.row * inner)[i] = a;
    d_gates[i] = dg;
    d_ups[i] = du;
  }
  if (d_weights == nullptr) return;
  dot = row_sum<RowThreads>(dot);
  if (at.lane == 0) d_weights[at.row] = dot;
}

// body.template operator()<RowThreads>(blocks).
template <class Body>
void with_row_threads(std::int64_t rows, std::int64_t packs, const Body& body) {
  constexpr std::int64_t kShort = 8 * kWarp;   // packs one warp still takes alone
  if (packs <= kShort) return body.template operator()<kWarp>(blocks_for(rows, kThreads / kWarp));
  return body.template operator()<kThreads>(static_cast<unsigned>(rows));
}

}  // namespace

void run(const ops::SwiGluFwd& op, CudaStream& stream) {
  const std::int64_t rows = op.act.rows, inner = op.act.cols;
  if (rows == 0) return;
  with_storage(op.act.dtype, "swiglu", [&]<class T>() {
    with_pack<T>(
        inner,
        [&]<int N>() {
          with_row_threads(rows, inner / N, [&]<int RowThreads>(unsigned blocks) {
            swiglu_fwd<T, N, RowThreads><<<blocks, kThreads, 0, stream.handle()>>>(
                op.gate_up.as<T>(), op.weights.as<float>(), op.act.as<T>(), rows,
                static_cast<int>(inner));
          });
        },
        op.gate_up.data, op.act.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("swiglu");
}

void run(const ops::SwiGluBwd& op, CudaStream& stream) {
  const std::int64_t rows = op.act.rows, inner = op.act.cols;
  if (rows == 0) return;
  with_storage(op.act.dtype, "swiglu backward", [&]<class T>() {
    with_pack<T>(
        inner,
        [&]<int N>() {
          with_row_threads(rows, inner / N, [&]<int RowThreads>(unsigned blocks) {
            swiglu_bwd<T, N, RowThreads><<<blocks, kThreads, 0, stream.handle()>>>(
                op.d_act.as<T>(), op.gate_up.as<T>(), op.weights.as<float>(), op.d_gate_up.as<T>(),
                op.act.as<T>(), op.d_weights.as<float>(), rows, static_cast<int>(inner));
          });
        },
        op.d_act.data, op.gate_up.data, op.d_gate_up.data, op.act.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("swiglu backward");
}

}  // namespace tandem::cuda
