// How a consumer warpgroup of the grouped products hands its outputs over. Private.
#pragma once

#include "hopper_shared.cuh"

namespace tandem::cuda::hopper {

__device__ __forceinline__ std::uint32_t bits_of(const auto& pair) {
  static_assert(sizeof(pair) == 4);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Two neighbours, rounded to T, as the 32 bits they are in memory.
template <class T>
__device__ __forceinline__ std::uint32_t rounded_pair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bits_of(__floats2bfloat162_rn(low, high));
  } else {
    return bits_of(__floats2half2_rn(low, high));
  }
}

// Rounds to T and stores the rows inside the expert, 64 columns at a time by way of shared
// memory: a warp's outputs lie in 2-element pieces, memory wants whole lines.
template <class T>
__device__ __forceinline__ void store_rows(const Outputs<kTileCols<Form::kForward>>& d,
                                           unsigned char* out, T* y, const Tile& tile, int group,
                                           const Problem& p) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kGroup / kWarp;
  unsigned char* mine = out + threadIdx.x / kWarp * 16 * 128;  // 16 rows of 64 columns, swizzled
  const auto piece = [&](int row, int eight) {
    return mine + row * 128 + ((eight ^ (row & 7)) << 4);
  };
  const int first = tile.row + group * kGroupRows + warp * 16;
  T* rows = y + std::int64_t{tile.first_row + first} * p.cols;
#pragma unroll
  for (int q = 0; q < kTileCols<Form::kForward> / 64; ++q) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {  // two blocks of 8 columns, each of two blocks of 8 rows
      std::uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (q * 8 + j) * 4 + 2 * i;
        r[i] = rounded_pair<T>(d.v[at], d.v[at + 1]);
      }
      store_matrices(piece(lane % 8 + lane / 8 % 2 * 8, j + lane / 16), r);
    }
    __syncwarp();  // hazard: the warp's 16 rows written before they are read line by line
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8, col = tile.col + q * 64 + lane % 8 * 8;
      const uint4 line = *reinterpret_cast<const uint4*>(piece(row, lane % 8));
      if (first + row < tile.height && col < p.cols)
        *reinterpret_cast<uint4*>(rows + std::int64_t{row} * p.cols + col) = line;
    }
    __syncwarp();  // hazard: these reads before the next 64 columns overwrite them
  }
}

}  // namespace tandem::cuda::hopper
