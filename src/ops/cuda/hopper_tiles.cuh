// Which tile of which expert comes next. Private to the grouped products.
#pragma once

#include "grouped.h"
#include "kernel.cuh"

namespace tandem::cuda::hopper {

struct Problem {
  int experts;
  int height;  // of one d_w; without meaning in the other forms, whose heights are experts' rows
  int cols;
  int depth;  // of the sums; without meaning in kWeight, whose depths are the experts' rows
  bool accumulate;  // kWeight: adds to d_w instead of storing
};

inline constexpr int kTileRows = 128, kTileDepth = 64;
// Narrower where one warpgroup holds a whole tile, so that its outputs find room in registers.
template <Form F>
inline constexpr int kTileCols = F == Form::kWeight ? 192 : 256;
inline constexpr int kMaxExperts = 512;

// Tiles of the experts in one numbering: expert by expert, within one in bands of kBand tiles down
// and all tiles across. Blocks that run together then share operands in L2.
struct TileTable {
  int first_row[kMaxExperts + 1];
  int first_tile[kMaxExperts + 1];
};

struct Tile {
  int expert;
  int first_row;  // of the expert, among all tokens
  int height;     // rows of the expert's output
  int depth;      // of its sums, at least 1
  int row, col;   // where the tile begins in the expert's output
};

inline constexpr int kBand = 16;

__host__ __device__ __forceinline__ constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

// Experts without rows have no tiles, in any form.
template <Form F>
__device__ __forceinline__ int height_of(const Problem& p, int rows) {
  if (F != Form::kWeight) return rows;
  return rows > 0 ? p.height : 0;
}

// Called by the whole block; the table is complete when it returns.
template <Form F>
__device__ __forceinline__ void fill_table(TileTable& table, const int* offsets, const Problem& p) {
  for (int e = threadIdx.x; e <= p.experts; e += blockDim.x) table.first_row[e] = offsets[e];
  __syncthreads();  // hazard: first rows written before warp 0 takes differences
  if (threadIdx.x < kWarp) {
    const int lane = threadIdx.x, across = ceil_div(p.cols, kTileCols<F>);
    int before = 0;
    if (lane == 0) table.first_tile[0] = 0;
    for (int base = 0; base < p.experts; base += kWarp) {
      const int e = base + lane;
      int tiles = 0;
      if (e < p.experts) {
        const int rows = table.first_row[e + 1] - table.first_row[e];
        tiles = ceil_div(height_of<F>(p, rows), kTileRows) * across;
      }
      for (int d = 1; d < kWarp; d *= 2) {
        const int other = __shfl_up_sync(kFullWarp, tiles, d);
        if (lane >= d) tiles += other;
      }
      if (e < p.experts) table.first_tile[e + 1] = before + tiles;
      before += __shfl_sync(kFullWarp, tiles, kWarp - 1);
    }
  }
  __syncthreads();  // hazard: the table written before any thread walks it
}

// Looks tiles up; numbers must not fall from call to call.
template <Form F>
class TileWalk {
 public:
  __device__ TileWalk(const TileTable& table, const Problem& p)
      : table_(table), problem_(p), across_(ceil_div(p.cols, kTileCols<F>)) {}

  [[nodiscard]] __device__ int count() const { return table_.first_tile[problem_.experts]; }

  __device__ Tile at(int number) {
    while (number >= table_.first_tile[expert_ + 1]) ++expert_;
    const int first_row = table_.first_row[expert_];
    const int rows = table_.first_row[expert_ + 1] - first_row;
    const int height = height_of<F>(problem_, rows);
    const int local = number - table_.first_tile[expert_];
    const int band = local / (kBand * across_), in_band = local - band * kBand * across_;
    const int down = min(kBand, ceil_div(height, kTileRows) - band * kBand);
    return {.expert = expert_,
            .first_row = first_row,
            .height = height,
            .depth = F == Form::kWeight ? rows : problem_.depth,
            .row = (band * kBand + in_band % down) * kTileRows,
            .col = in_band / down * kTileCols<F>};
  }

 private:
  const TileTable& table_;
  const Problem problem_;
  const int across_;
  int expert_ = 0;
};

}  // namespace tandem::cuda::hopper
