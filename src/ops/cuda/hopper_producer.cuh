// The producer of the grouped products: draws tiles and loads their operands stage by stage.
// Private.
#pragma once

#include "hopper_shared.cuh"

namespace tandem::cuda::hopper {

// The operands of one stage: columns of output and depth as the maps have them.
template <Form F>
__device__ __forceinline__ void load_stage(unsigned char* stage, const Maps& maps, const Tile& tile,
                                           int l, Barrier full) {
  full.arrive_expecting(kStageBytes<F>);
  if constexpr (kLeftCrossed<F>) {
#pragma unroll
    for (int i = 0; i < kLeftBoxes; ++i)
      load_box(stage + i * kBoxBytes, maps.left, {tile.row + i * kBoxRow, tile.first_row + l, 0},
               full);
  } else {
    load_box(stage, maps.left, {l, tile.first_row + tile.row, 0}, full);
  }
  stage += kLeftBoxes * kBoxBytes;
  if constexpr (kRightCrossed<F>) {
    const int row = F == Form::kWeight ? tile.first_row + l : l;
    const int matrix = F == Form::kWeight ? 0 : tile.expert;
#pragma unroll
    for (int i = 0; i < kRightBoxes<F>; ++i)
      load_box(stage + i * kBoxBytes, maps.right, {tile.col + i * kBoxRow, row, matrix}, full);
  } else {
    load_box(stage, maps.right, {l, tile.col, tile.expert}, full);
  }
}

// Adding to d_w reads it in L2. Where an expert has few rows that reading takes longer than the
// products; it is then begun while they run, a tile's boxes one after the other, some with every
// stage. With more rows there is time enough, and the boxes would only push operands out of L2.
inline constexpr int kFewRows = 512;

class SumsAhead {
 public:
  __device__ SumsAhead(const CUtensorMap& map, const Tile& tile, const Problem& p)
      : map_(map),
        tile_(tile),
        down_(ceil_div(min(kTileRows, p.height - tile.row), kBoxRow)),
        boxes_(p.accumulate && tile.depth <= kFewRows
                   ? down_ * ceil_div(min(kTileCols<Form::kWeight>, p.cols - tile.col), kSumCols)
                   : 0),
        share_(ceil_div(boxes_, ceil_div(tile.depth, kTileDepth))) {}

  __device__ void next() {
    for (const int end = min(boxes_, next_ + share_); next_ < end; ++next_)
      prefetch_box(map_, {tile_.col + next_ / down_ * kSumCols,
                          tile_.row + next_ % down_ * kBoxRow, tile_.expert});
  }

 private:
  const CUtensorMap& map_;
  const Tile& tile_;
  const int down_, boxes_, share_;
  int next_ = 0;
};

// One thread. The first tile is the block's own number, the others are drawn: a block that runs
// slowly, because its processor is shared, gets fewer.
template <Form F>
__device__ __forceinline__ void produce(Shared<F>& shared, const Maps& maps, const Problem& p,
                                        TileCounter* counter) {
  TileWalk<F> walk(shared.table, p);
  Cursor<kStages> stage{.parity = 1};
  Cursor<kQueue> slot{.parity = 1};
  for (int number = static_cast<int>(blockIdx.x);;) {
    // hazard: all consumer warps' reads of this slot before it is written again
    Barrier(shared.taken[slot.slot]).wait(slot.parity);
    shared.queue[slot.slot] = number;
    Barrier(shared.queued[slot.slot]).arrive();
    slot.next();
    if (number >= walk.count()) break;  // queued as well: it ends the consumers
    const int next = static_cast<int>(gridDim.x + atomicAdd(&counter->drawn, 1U));
    const Tile tile = walk.at(number);
    [[maybe_unused]] SumsAhead sums(maps.out, tile, p);
    for (int l = 0; l < tile.depth; l += kTileDepth) {
      // hazard: the consumers' products from this stage before it is loaded again
      Barrier(shared.empty[stage.slot]).wait(stage.parity);
      load_stage<F>(shared.stage[stage.slot], maps, tile, l, Barrier(shared.full[stage.slot]));
      if constexpr (F == Form::kWeight) sums.next();
      stage.next();
    }
    number = next;
  }
  // The last block to finish leaves the counter as it was found.
  __threadfence();  // hazard: this block's draws before its count as finished
  if (atomicAdd(&counter->finished, 1U) == gridDim.x - 1) *counter = {0, 0};
}

}  // namespace tandem::cuda::hopper
