// The router of a mixture-of-experts layer: choice, gradient and the two auxiliary losses.
#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;   // tokens of a block, one warp each

// Largest value over the warp, ties to the lower index; on every lane.
struct Best {
  float value;
  int index;
};
__device__ __forceinline__ Best warp_best(Best best) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Best other{__shfl_xor_sync(kFullWarp, best.value, d),
                     __shfl_xor_sync(kFullWarp, best.index, d)};
    if (other.value > best.value || (other.value == best.value && other.index < best.index))
      best = other;
  }
  return best;
}

__global__ void __launch_bounds__(kThreads)
    router_fwd(const float* logits, float* probs, int* chosen, float* weights, float* z, int tokens,
               int experts, int topk, bool renormalise) {
  extern __shared__ float rows[];   // [kWarps, experts]: probabilities not chosen yet
  const int lane = threadIdx.x % kWarp, t = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (t >= tokens) return;
  float* left = rows + (threadIdx.x / kWarp) * experts;
  const float* row = logits + std::int64_t{t} * experts;

  float largest = -INFINITY;
  for (int e = lane; e < experts; e += kWarp) largest = fmaxf(largest, row[e]);
  largest = warp_max(largest);
  float total = 0.0F;
  for (int e = lane; e < experts; e += kWarp) total += left[e] = expf(row[e] - largest);
  total = warp_sum(total);
  if (lane == 0) z[t] = largest + logf(total);
  for (int e = lane; e < experts; e += kWarp)
    probs[std::int64_t{t} * experts + e] = left[e] = left[e] / total;

  float mass = 0.0F;
  for (int j = 0; j < topk; ++j) {
    Best best{-1.0F, experts};
    for (int e = lane; e < experts; e += kWarp)
      if (left[e] > best.value) best = {left[e], e};
    best = warp_best(best);
    mass += best.value;
    if (best.index % kWarp == lane) left[best.index] = -2.0F;   // only this lane reads it again
    if (lane == 0) {
      chosen[t * topk + j] = best.index;
      weights[t * topk + j] = best.value;
    }
  }
  __syncwarp();   // hazard: lane 0's weights before it rescales them
  if (renormalise && lane == 0)
    for (int j = 0; j < topk; ++j) weights[t * topk + j] /= mass;
}

__global__ void __launch_bounds__(kThreads)
    router_bwd(const float* d_weights, const float* probs, const int* chosen, const float* weights,
               const float* z, const float* load, float* d_logits, int tokens, int experts, int topk,
               float aux_scale, float z_scale, bool renormalise) {
  const int lane = threadIdx.x % kWarp, t = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (t >= tokens) return;
  const float* p = probs + std::int64_t{t} * experts;
  const int* c = chosen + t * topk;
  float mass = 0.0F, mean = 0.0F;
  for (int j = 0; j < topk; ++j) {
    mass += p[c[j]];
    mean += d_weights[t * topk + j] * weights[t * topk + j];
  }
  const auto d_prob = [&](int e) {
    float d = load == nullptr ? 0.0F : aux_scale * load[e];
    for (int j = 0; j < topk; ++j) {
      const float w = d_weights[t * topk + j];
      if (c[j] == e) d += renormalise ? (w - mean) / mass : w;
    }
    return d;
  };
  float inner = 0.0F;
  for (int e = lane; e < experts; e += kWarp) inner += p[e] * d_prob(e);
  inner = warp_sum(inner);
  const float from_z = z_scale * 2.0F * z[t];
  for (int e = lane; e < experts; e += kWarp)
    d_logits[std::int64_t{t} * experts + e] = p[e] * (d_prob(e) - inner + from_z);
}

constexpr int kLossParts = 64;   // slices of the tokens, added in order

// parts[s, e]: sum of probs over slice s; parts[s, experts]: sum of z^2.
__global__ void loss_parts(const float* probs, const float* z, double* parts, int tokens,
                           int experts) {
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e > experts) return;
  const int begin = std::int64_t{tokens} * blockIdx.y / kLossParts;
  const int end = std::int64_t{tokens} * (blockIdx.y + 1) / kLossParts;
  double sum = 0.0;
  for (int t = begin; t < end; ++t)
    sum += e == experts ? double{z[t]} * z[t] : double{probs[std::int64_t{t} * experts + e]};
  parts[blockIdx.y * (experts + 1) + e] = sum;
}

__global__ void __launch_bounds__(kThreads)
    loss_finish(const double* parts, const float* load, float* prob_sum, float* out, int experts,
                bool accumulate) {
  double balance = 0.0;
  for (int e = threadIdx.x; e <= experts; e += kThreads) {
    double sum = accumulate && e < experts ? double{prob_sum[e]} : 0.0;
#pragma unroll 16
    for (int s = 0; s < kLossParts; ++s) sum += parts[s * (experts + 1) + e];
    if (e < experts) {
      prob_sum[e] = static_cast<float>(sum);
      balance += double{load[e]} * sum;
    } else {
      out[1] = static_cast<float>(sum);
    }
  }
  balance = block_sum<kThreads>(balance);
  if (threadIdx.x == 0) out[0] = static_cast<float>(balance);
}

}  // namespace

void run(const ops::RouterFwd& op, CudaStream& stream) {
  if (op.logits.rows == 0) return;
  const auto experts = static_cast<int>(op.logits.cols);
  router_fwd<<<blocks_for(op.logits.rows, kWarps), kThreads,
               kWarps * static_cast<unsigned>(experts) * sizeof(float), stream.handle()>>>(
      op.logits.as<float>(), op.probs.as<float>(), op.chosen.as<int>(), op.weights.as<float>(),
      op.z.as<float>(), op.logits.rows, experts, op.chosen.cols, op.renormalise);
  TANDEM_CUDA_CHECK_LAUNCH("router");
}

void run(const ops::RouterBwd& op, CudaStream& stream) {
  if (op.probs.rows == 0) return;
  router_bwd<<<blocks_for(op.probs.rows, kWarps), kThreads, 0, stream.handle()>>>(
      op.d_weights.as<float>(), op.probs.as<float>(), op.chosen.as<int>(), op.weights.as<float>(),
      op.z.as<float>(), op.load.as<float>(), op.d_logits.as<float>(), op.probs.rows, op.probs.cols,
      op.chosen.cols, op.aux_scale, op.z_scale, op.renormalise);
  TANDEM_CUDA_CHECK_LAUNCH("router backward");
}

void run(const ops::RouterLoss& op, CudaStream& stream) {
  const auto experts = static_cast<int>(op.probs.cols);
  auto* parts =
      stream.local<Workspace>().at_least<double>(std::size_t{kLossParts} * std::size_t(experts + 1));
  loss_parts<<<dim3(blocks_for(experts + 1, kThreads), kLossParts), kThreads, 0, stream.handle()>>>(
      op.probs.as<float>(), op.z.as<float>(), parts, op.probs.rows, experts);
  loss_finish<<<1, kThreads, 0, stream.handle()>>>(parts, op.load.as<float>(),
                                                   op.prob_sum.as<float>(), op.out.as<float>(),
                                                   experts, op.accumulate);
  TANDEM_CUDA_CHECK_LAUNCH("router loss");
}

}  // namespace tandem::cuda
