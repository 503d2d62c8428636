#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 1024;

// Sum of exp(x - largest) over some values, carried along as the largest grows (Milakov &
// Gimelshein 2018): one pass over the row instead of two.
struct ExpSum {
  float largest = -INFINITY, sum = 0.0F;

  // Both empty stays empty: exp(-inf - -inf) would be NaN.
  __device__ void add(const ExpSum& other) {
    const float top = fmaxf(largest, other.largest);
    if (top == -INFINITY) return;
    sum = sum * expf(largest - top) + other.sum * expf(other.largest - top);
    largest = top;
  }
};

// Of the whole block, on every thread, in an order of its own.
__device__ __forceinline__ ExpSum block_total(ExpSum mine) {
  __shared__ ExpSum parts[kThreads / kWarp];
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    ExpSum other;
    other.largest = __shfl_xor_sync(kFullWarp, mine.largest, d);
    other.sum = __shfl_xor_sync(kFullWarp, mine.sum, d);
    mine.add(other);
  }
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();   // hazard: all parts written before any thread reads them
  ExpSum total = parts[0];
  for (int i = 1; i < kThreads / kWarp; ++i) total.add(parts[i]);
  return total;
}

// One block a token. A label outside the vocabulary traps: the data loader has checked them.
// d_logits may be null, or the logits themselves.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy(const float* logits, const int* labels, float* loss, T* d_logits, int vocab,
                  float scale) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * vocab;
  const auto* row = reinterpret_cast<const Pack<float, N>*>(logits + begin);
  const int label = labels[blockIdx.x], packs = vocab / N;
  if (label < 0 || label >= vocab) __trap();
  ExpSum mine;
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const Pack<float, N> x = row[i];
    ExpSum next{x.v[0], 0.0F};
#pragma unroll
    for (int j = 1; j < N; ++j) next.largest = fmaxf(next.largest, x.v[j]);
    const float top = fmaxf(mine.largest, next.largest);
#pragma unroll
    for (int j = 0; j < N; ++j) next.sum += expf(x.v[j] - top);
    mine.sum = mine.largest == -INFINITY ? next.sum : mine.sum * expf(mine.largest - top) + next.sum;
    mine.largest = top;
  }
  const ExpSum total = block_total(mine);
  if (threadIdx.x == 0) loss[blockIdx.x] = total.largest + logf(total.sum) - logits[begin + label];
  if (d_logits == nullptr) return;
  __syncthreads();   // hazard: the loss reads the label's logit before it is overwritten
  const float factor = scale / total.sum;
  auto* out = reinterpret_cast<Pack<T, N>*>(d_logits + begin);
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const Pack<float, N> x = row[i];
    Pack<T, N> d;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float p = expf(x.v[j] - total.largest) * factor;
      d.v[j] = from_float<T>(i * N + j == label ? p - scale : p);
    }
    out[i] = d;
  }
}

}  // namespace

void run(const ops::CrossEntropy& op, CudaStream& stream) {
  if (op.logits.rows == 0) return;
  const DType out = op.d_logits.data == nullptr ? DType::kF32 : op.d_logits.dtype;
  with_storage(out, "cross-entropy", [&]<class T>() {
    with_pack<float>(
        op.logits.cols,
        [&]<int N>() {
          cross_entropy<T, N><<<op.logits.rows, kThreads, 0, stream.handle()>>>(
              op.logits.as<float>(), op.labels.as<int>(), op.loss.as<float>(), op.d_logits.as<T>(),
              op.logits.cols, op.scale);
        },
        op.logits.data, op.d_logits.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("cross-entropy");
}

}  // namespace tandem::cuda
