// What every kernel uses: element conversion, 16-byte packs, reductions in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tandem/device/cuda_check.h"
#include "tandem/base/dtype.h"
#include "tandem/base/error.h"
#include "tandem/device/cuda_stream.h"

namespace tandem::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(f16 x) { return __half2float(x); }

// To nearest even; what is too large becomes infinity.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, f16>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// N neighbouring elements, moved in one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

template <class T>
inline constexpr int kPack = 16 / sizeof(T);

inline constexpr unsigned kFullWarp = 0xFFFFFFFFU;
inline constexpr int kWarp = 32;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(kFullWarp, x, d);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, d));
  return x;
}

// Sum over the block, on every thread. The order depends on the block size alone.
template <int Threads>
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float parts[Threads / kWarp];
  x = warp_sum(x);
  __syncthreads();   // hazard: reads of the last call's parts before this call writes them
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();   // hazard: all parts written before any thread reads them
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < Threads / kWarp; ++i) sum += parts[i];
  return sum;
}

// The same in double. The upper half is added to the lower, again and again.
template <int Threads>
__device__ __forceinline__ double block_sum(double x) {
  static_assert((Threads & (Threads - 1)) == 0, "halves of halves");
  __shared__ double parts[Threads];
  __syncthreads();   // hazard: reads of the last call's parts before this call writes them
  parts[threadIdx.x] = x;
  for (int half = Threads / 2; half > 0; half /= 2) {
    __syncthreads();   // hazard: the writes of the last round before this round reads them
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  __syncthreads();   // hazard: the sum written before any thread reads it
  return parts[0];
}

// body.template operator()<T>() with the storage type of `dtype`.
template <class Body>
void with_storage(DType dtype, const char* what, const Body& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kBF16) return body.template operator()<bf16>();
  if (dtype == DType::kF16) return body.template operator()<f16>();
  throw_error(ExitCode::kInternal, "{}: no CUDA kernel for {}", what, name_of(dtype));
}

// body.template operator()<N>(): N elements of T per access if rows of `cols` elements and all
// pointers allow it, else 1.
template <class T, class Body, class... Pointers>
void with_pack(std::int64_t cols, const Body& body, Pointers... pointers) {
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
  if (aligned && cols % kPack<T> == 0) return body.template operator()<kPack<T>>();
  return body.template operator()<1>();
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace tandem::cuda
