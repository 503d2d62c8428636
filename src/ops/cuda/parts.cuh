// The second half of a sum over rows: blocks leave one partial sum each, and these are added in a
// fixed order, so that the same inputs give the same bits without atomics.
#pragma once

#include "kernel.cuh"

namespace tandem::cuda {

inline constexpr int kPartShares = 32;   // threads that share the parts of a column

// out[c] += sum over p of parts[p * stride + c], c < cols. Block: [kWarp columns, kPartShares].
static __global__ void __launch_bounds__(kWarp* kPartShares)
    add_parts_kernel(const float* parts, int num_parts, int stride, float* out, int cols) {
  __shared__ float shared[kPartShares][kWarp + 1];
  const int c = blockIdx.x * kWarp + threadIdx.x;
  float sum = 0.0F;
  if (c < cols) {
#pragma unroll 8
    for (int p = threadIdx.y; p < num_parts; p += kPartShares)
      sum += parts[std::int64_t{p} * stride + c];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();   // hazard: all shares written before they are added
  if (threadIdx.y != 0 || c >= cols) return;
  for (int share = 1; share < kPartShares; ++share) sum += shared[share][threadIdx.x];
  out[c] += sum;
}

inline void add_parts(const float* parts, int num_parts, int stride, float* out, int cols,
                      cudaStream_t stream) {
  add_parts_kernel<<<blocks_for(cols, kWarp), dim3(kWarp, kPartShares), 0, stream>>>(
      parts, num_parts, stride, out, cols);
}

}  // namespace tandem::cuda
