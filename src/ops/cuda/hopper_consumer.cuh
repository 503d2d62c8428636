// The consumers of the grouped products: two warpgroups, each with half of a tile's rows; those of
// kWeight are in hopper_weight.cuh. Private.
#pragma once

#include "hopper_store.cuh"

namespace tandem::cuda::hopper {

// What one warpgroup holds of a tile's outputs: 64 rows, or all of them in two halves.
template <Form F>
inline constexpr int kSumParts = F == Form::kWeight ? kSumHalves : 1;
template <Form F>
struct TileSums {
  Outputs<kTileCols<F>> part[kSumParts<F>];
};

// One stage's products for 64 rows of outputs, left running. left, right: the stage's operands.
template <Form F, class T>
__device__ __forceinline__ void multiply_stage(Outputs<kTileCols<F>>& d, const unsigned char* left,
                                               const unsigned char* right, bool first) {
  const std::uint64_t a = operand<kLeftCrossed<F>>(left), b = operand<kRightCrossed<F>>(right);
#pragma unroll
  for (int i = 0; i < kTileDepth / 16; ++i)
    multiply_16<T, kLeftCrossed<F>, kRightCrossed<F>>(d, a + i * kNextDepth<kLeftCrossed<F>>,
                                                      b + i * kNextDepth<kRightCrossed<F>>,
                                                      !first || i > 0);
}

template <Form F>
__device__ __forceinline__ void release_stage(Shared<F>& shared, int slot) {
  if (threadIdx.x % kWarp == 0) Barrier(shared.empty[slot]).arrive();
}

// What a warpgroup without rows in the tile does: it keeps step with the stages.
template <Form F>
__device__ __forceinline__ void pass_tile(Shared<F>& shared, const Tile& tile,
                                          Cursor<kStages>& stage) {
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    // hazard: the phase this warp arrived for last before it arrives for the next
    Barrier(shared.full[stage.slot]).wait(stage.parity);
    __syncwarp();  // hazard: all lanes past the wait before the stage's barriers move on
    release_stage<F>(shared, stage.slot);
    stage.next();
  }
}

// The products of all stages of a tile, the last still running, into part i from box `box` + i of
// the left operand. prepare(left, depth) sees each stage when it is loaded, with the depth from
// there on. Returns the last stage's slot, for end_products.
template <Form F, class T, class Prepare>
__device__ __forceinline__ int multiply_stages(TileSums<F>& d, Shared<F>& shared, const Tile& tile,
                                               int box, Cursor<kStages>& stage,
                                               const Prepare& prepare) {
  int running = -1;  // the stage whose products may still be running
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    // hazard: TMA's writes of this stage before they are read
    Barrier(shared.full[stage.slot]).wait(stage.parity);
    unsigned char* left = shared.stage[stage.slot];
    prepare(left, tile.depth - l);
#pragma unroll
    for (int i = 0; i < kSumParts<F>; ++i) pin(d.part[i]);
    begin_products();  // hazard: other accesses to the outputs' registers and these products
#pragma unroll
    for (int i = 0; i < kSumParts<F>; ++i)
      multiply_stage<F, T>(d.part[i], left + (box + i) * kBoxBytes, left + kLeftBoxes * kBoxBytes,
                           l == 0);
    commit_products();
    if (running >= 0) {
      wait_products<1>();  // hazard: the previous stage's products before it is given back
      release_stage<F>(shared, running);
    }
    running = stage.slot;
    stage.next();
  }
  return running;
}

template <Form F>
__device__ __forceinline__ void end_products(TileSums<F>& d, Shared<F>& shared, int last) {
  wait_products<0>();  // hazard: the last products before outputs and stage are used
#pragma unroll
  for (int i = 0; i < kSumParts<F>; ++i) pin(d.part[i]);
  release_stage<F>(shared, last);
}

// Nothing to prepare. No lambda: nvcc 13.0 fails on one in here.
struct AsLoaded {
  __device__ void operator()(unsigned char* /*left*/, int /*depth*/) const {}
};

// Both consumer warpgroups, until the producer queues a number past the last tile.
template <Form F, class T>
__device__ __forceinline__ void consume(Shared<F>& shared, const Problem& p, T* y, int group) {
  static_assert(F != Form::kWeight);
  TileWalk<F> walk(shared.table, p);
  Cursor<kStages> stage{.parity = 0};
  Cursor<kQueue> slot{.parity = 0};
  TileSums<F> d;
  for (;;) {
    const int number = next_number<F>(shared, slot);
    if (number >= walk.count()) break;
    const Tile tile = walk.at(number);
    if (tile.row + group * kGroupRows >= tile.height) {
      pass_tile<F>(shared, tile, stage);
      continue;
    }
    const int last = multiply_stages<F, T>(d, shared, tile, group, stage, AsLoaded{});
    end_products<F>(d, shared, last);
    store_rows(d.part[0], shared.out, y, tile, group, p);
  }
}

}  // namespace tandem::cuda::hopper
