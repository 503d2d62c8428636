// Moving tokens into expert-major order and back.
#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPairs = 256;   // (token, choice) pairs one block ranks
constexpr int kCounted = 8192;   // experts one block counts: 32 KiB of counts

// The plan is a stable counting sort by expert, in steps.
// 1. block_counts[e, b]: pairs of block b that chose e. Block: [pairs, experts].
__global__ void __launch_bounds__(kPairs)
    count_pairs(const int* chosen, int* block_counts, int pairs, int experts) {
  extern __shared__ int histogram[];
  const int first = blockIdx.y * kCounted, counted = min(experts - first, kCounted);
  for (int e = threadIdx.x; e < counted; e += kPairs) histogram[e] = 0;
  __syncthreads();   // hazard: zeroes written before counts are added
  const int i = blockIdx.x * kPairs + threadIdx.x;
  const int choice = i < pairs ? chosen[i] - first : -1;
  if (choice >= 0 && choice < counted)
    atomicAdd(&histogram[choice], 1);   // integers: any order gives the same sum
  __syncthreads();   // hazard: counts complete before they are written out
  for (int e = threadIdx.x; e < counted; e += kPairs)
    block_counts[std::int64_t{first + e} * gridDim.x + blockIdx.x] = histogram[e];
}

__device__ __forceinline__ int warp_total(int x) { return __reduce_add_sync(kFullWarp, x); }

// Sum of the values of the lanes before this one.
__device__ __forceinline__ int warp_sum_before(int x, int lane) {
  int sum = x;
#pragma unroll
  for (int d = 1; d < kWarp; d *= 2) {
    const int other = __shfl_up_sync(kFullWarp, sum, d);
    if (lane >= d) sum += other;
  }
  return sum - x;
}

// 2. counts[e], one warp an expert.
__global__ void __launch_bounds__(kThreads)
    count_experts(const int* block_counts, int* counts, float* load, int blocks, int experts) {
  const int lane = threadIdx.x % kWarp, e = (blockIdx.x * kThreads + threadIdx.x) / kWarp;
  if (e >= experts) return;
  int sum = 0;
  for (int b = lane; b < blocks; b += kWarp) sum += block_counts[std::int64_t{e} * blocks + b];
  sum = warp_total(sum);
  if (lane != 0) return;
  counts[e] = sum;
  if (load != nullptr) load[e] = static_cast<float>(sum);
}

// 3. block_counts[e, b] becomes the first row of block b's pairs that chose e; one warp an expert.
__global__ void __launch_bounds__(kThreads)
    place_blocks(int* block_counts, const int* counts, int blocks, int experts) {
  const int lane = threadIdx.x % kWarp, e = (blockIdx.x * kThreads + threadIdx.x) / kWarp;
  if (e >= experts) return;
  int* mine = block_counts + std::int64_t{e} * blocks;
  int row = 0;
  for (int before = lane; before < e; before += kWarp) row += counts[before];
  row = warp_total(row);
  for (int first = 0; first < blocks; first += kWarp) {
    const int b = first + lane;
    const int count = b < blocks ? mine[b] : 0;
    const int before = warp_sum_before(count, lane);   // of the whole warp
    if (b < blocks) mine[b] = row + before;
    row += warp_total(count);
  }
}

// 4. A pair's row: its block's first row plus the earlier pairs of the block with the same choice.
__global__ void __launch_bounds__(kPairs)
    place_pairs(const int* chosen, const int* first_rows, int* rows, int pairs) {
  __shared__ int choice[kPairs];
  const int i = blockIdx.x * kPairs + threadIdx.x;
  choice[threadIdx.x] = i < pairs ? chosen[i] : -1;
  __syncthreads();   // hazard: all choices written before any thread compares them
  if (i >= pairs) return;
  const int mine = choice[threadIdx.x];
  int rank = 0;
  for (int j = 0; j < threadIdx.x; ++j) rank += choice[j] == mine ? 1 : 0;
  rows[i] = first_rows[std::int64_t{mine} * gridDim.x + blockIdx.x] + rank;
}

// One block a token: its row is read once and written topk times.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    permute_rows(const T* x, const int* rows, T* out, int cols, int topk) {
  using P = Pack<T, N>;
  const std::int64_t t = blockIdx.x;
  const auto* from = reinterpret_cast<const P*>(x + t * cols);
  for (int i = threadIdx.x; i < cols / N; i += kThreads) {
    const P p = from[i];
    for (int j = 0; j < topk; ++j)
      reinterpret_cast<P*>(out + std::int64_t{rows[t * topk + j]} * cols)[i] = p;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    unpermute_sum(const T* in, const int* rows, const T* add, T* out, int cols, int topk) {
  using P = Pack<T, N>;
  const std::int64_t t = blockIdx.x;
  for (int i = threadIdx.x; i < cols / N; i += kThreads) {
    float sum[N] = {};
    for (int j = 0; j < topk; ++j) {
      const P p = reinterpret_cast<const P*>(in + std::int64_t{rows[t * topk + j]} * cols)[i];
#pragma unroll
      for (int l = 0; l < N; ++l) sum[l] += to_float(p.v[l]);
    }
    if (add != nullptr) {
      const P p = reinterpret_cast<const P*>(add + t * cols)[i];
#pragma unroll
      for (int l = 0; l < N; ++l) sum[l] += to_float(p.v[l]);
    }
    P o;
#pragma unroll
    for (int l = 0; l < N; ++l) o.v[l] = from_float<T>(sum[l]);
    reinterpret_cast<P*>(out + t * cols)[i] = o;
  }
}

__global__ void scatter_weights(const float* weights, const int* rows, float* out, int pairs) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < pairs) out[rows[i]] = weights[i];
}

__global__ void gather_weights(const float* in, const int* rows, float* out, int pairs) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < pairs) out[i] = in[rows[i]];
}

// One warp: totals of its experts, then their running sum.
__global__ void __launch_bounds__(kWarp)
    expert_offsets(const int* counts, int* offsets, int sources, int experts) {
  const int lane = threadIdx.x;
  int row = 0;
  for (int first = 0; first < experts; first += kWarp) {
    const int e = first + lane;
    int count = 0;
    if (e < experts)
      for (int s = 0; s < sources; ++s) count += counts[s * experts + e];
    const int before = warp_sum_before(count, lane);
    if (e < experts) offsets[e] = row + before;
    row += warp_total(count);
  }
  if (lane == 0) offsets[experts] = row;
}

}  // namespace

void run(const ops::PermutePlan& op, CudaStream& stream) {
  const auto pairs = static_cast<int>(op.chosen.size()), experts = static_cast<int>(op.counts.size());
  const auto blocks = static_cast<int>(blocks_for(pairs, kPairs));
  const dim3 by_experts(blocks, blocks_for(experts, kCounted));
  const auto histogram_bytes = std::min<unsigned>(experts, kCounted) * sizeof(int);
  auto* block_counts =
      stream.local<Workspace>().at_least<int>(std::size_t(std::max(1, blocks)) * std::size_t(experts));
  const auto* chosen = op.chosen.as<int>();
  if (pairs > 0)
    count_pairs<<<by_experts, kPairs, histogram_bytes, stream.handle()>>>(chosen, block_counts,
                                                                          pairs, experts);
  const unsigned warps = blocks_for(experts, kThreads / kWarp);
  count_experts<<<warps, kThreads, 0, stream.handle()>>>(block_counts, op.counts.as<int>(),
                                                         op.load.as<float>(), blocks, experts);
  place_blocks<<<warps, kThreads, 0, stream.handle()>>>(block_counts, op.counts.as<int>(), blocks,
                                                        experts);
  if (pairs > 0)
    place_pairs<<<blocks, kPairs, 0, stream.handle()>>>(chosen, block_counts, op.rows.as<int>(),
                                                        pairs);
  TANDEM_CUDA_CHECK_LAUNCH("permute plan");
}

void run(const ops::PermuteRows& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  with_storage(op.x.dtype, "permute", [&]<class T>() {
    with_pack<T>(
        op.x.cols,
        [&]<int N>() {
          permute_rows<T, N><<<op.x.rows, kThreads, 0, stream.handle()>>>(
              op.x.as<T>(), op.rows.as<int>(), op.out.as<T>(), op.x.cols, op.rows.cols);
        },
        op.x.data, op.out.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("permute");
}

void run(const ops::UnpermuteSum& op, CudaStream& stream) {
  if (op.out.rows == 0) return;
  with_storage(op.out.dtype, "unpermute", [&]<class T>() {
    with_pack<T>(
        op.out.cols,
        [&]<int N>() {
          unpermute_sum<T, N><<<op.out.rows, kThreads, 0, stream.handle()>>>(
              op.in.as<T>(), op.rows.as<int>(), op.add.as<T>(), op.out.as<T>(), op.out.cols,
              op.rows.cols);
        },
        op.in.data, op.add.data, op.out.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("unpermute");
}

void run(const ops::PermuteWeights& op, CudaStream& stream) {
  const auto pairs = static_cast<int>(op.weights.size());
  if (pairs == 0) return;
  scatter_weights<<<blocks_for(pairs, kThreads), kThreads, 0, stream.handle()>>>(
      op.weights.as<float>(), op.rows.as<int>(), op.out.as<float>(), pairs);
  TANDEM_CUDA_CHECK_LAUNCH("permute weights");
}

void run(const ops::UnpermuteWeights& op, CudaStream& stream) {
  const auto pairs = static_cast<int>(op.out.size());
  if (pairs == 0) return;
  gather_weights<<<blocks_for(pairs, kThreads), kThreads, 0, stream.handle()>>>(
      op.in.as<float>(), op.rows.as<int>(), op.out.as<float>(), pairs);
  TANDEM_CUDA_CHECK_LAUNCH("unpermute weights");
}

void run(const ops::ExpertOffsets& op, CudaStream& stream) {
  expert_offsets<<<1, kWarp, 0, stream.handle()>>>(op.counts.as<int>(), op.offsets.as<int>(),
                                               op.counts.rows, op.counts.cols);
  TANDEM_CUDA_CHECK_LAUNCH("expert offsets");
}

}  // namespace tandem::cuda
