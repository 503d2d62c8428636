#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 512;

template <int Threads>
__device__ __forceinline__ float block_max(float x) {
  __shared__ float parts[Threads / kWarp];
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();   // hazard: all parts written before any thread reads them
  float largest = parts[0];
#pragma unroll
  for (int i = 1; i < Threads / kWarp; ++i) largest = fmaxf(largest, parts[i]);
  return largest;
}

// One block a token. A label outside the vocabulary traps: the data loader has checked them.
__global__ void __launch_bounds__(kThreads)
    cross_entropy(float* logits, const int* labels, float* loss, int vocab, float scale,
                  bool gradient) {
  float* row = logits + std::int64_t{blockIdx.x} * vocab;
  const int label = labels[blockIdx.x];
  if (label < 0 || label >= vocab) __trap();
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < vocab; i += kThreads) largest = fmaxf(largest, row[i]);
  largest = block_max<kThreads>(largest);
  float sum = 0.0F;
  for (int i = threadIdx.x; i < vocab; i += kThreads) sum += expf(row[i] - largest);
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = largest + logf(sum) - row[label];
  if (!gradient) return;
  __syncthreads();   // hazard: the loss reads the label's logit before it is overwritten
  const float inverse = scale / sum;
  for (int i = threadIdx.x; i < vocab; i += kThreads)
    row[i] = expf(row[i] - largest) * inverse - (i == label ? scale : 0.0F);
}

}  // namespace

void run(const ops::CrossEntropy& op, CudaStream& stream) {
  if (op.logits.rows == 0) return;
  cross_entropy<<<op.logits.rows, kThreads, 0, stream.handle()>>>(
      op.logits.as<float>(), op.labels.as<int>(), op.loss.as<float>(), op.logits.cols, op.scale,
      op.gradient);
  TANDEM_CUDA_CHECK_LAUNCH("cross-entropy");
}

}  // namespace tandem::cuda
