// The router of a mixture-of-experts layer: choice, gradient and the two auxiliary losses.
#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;   // tokens of a block, one warp each

// The order of the choice: larger values first, of equals the lower index.
struct Candidate {
  float value;
  int index;
  __device__ bool before(const Candidate& other) const {
    return value > other.value || (value == other.value && index < other.index);
  }
};
// The first of the warp's, on every lane.
__device__ __forceinline__ Candidate warp_first(Candidate first) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Candidate other{__shfl_xor_sync(kFullWarp, first.value, d),
                          __shfl_xor_sync(kFullWarp, first.index, d)};
    if (other.before(first)) first = other;
  }
  return first;
}

__global__ void __launch_bounds__(kThreads)
    router_fwd(const float* logits, float* probs, int* chosen, float* weights, float* z, int tokens,
               int experts, int topk, bool renormalise) {
  const int lane = threadIdx.x % kWarp, t = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (t >= tokens) return;
  const float* row = logits + std::int64_t{t} * experts;
  float* p = probs + std::int64_t{t} * experts;   // a lane reads what it wrote itself

  float largest = -INFINITY;
  for (int e = lane; e < experts; e += kWarp) largest = fmaxf(largest, row[e]);
  largest = warp_max(largest);
  float total = 0.0F;
  for (int e = lane; e < experts; e += kWarp) total += p[e] = expf(row[e] - largest);
  total = warp_sum(total);
  if (lane == 0) z[t] = largest + logf(total);
  for (int e = lane; e < experts; e += kWarp) p[e] /= total;

  float mass = 0.0F;
  Candidate last{INFINITY, -1};
  for (int j = 0; j < topk; ++j) {
    Candidate next{-1.0F, experts};
    for (int e = lane; e < experts; e += kWarp) {
      const Candidate mine{p[e], e};
      if (last.before(mine) && mine.before(next)) next = mine;
    }
    last = warp_first(next);
    if (isnan(total)) last = {total, j};   // all of p is NaN, which has no place in an order
    mass += last.value;
    if (lane == 0) {
      chosen[t * topk + j] = last.index;
      weights[t * topk + j] = last.value;
    }
  }
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
  router_fwd<<<blocks_for(op.logits.rows, kWarps), kThreads, 0, stream.handle()>>>(
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
