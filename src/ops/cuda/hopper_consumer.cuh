// The consumers of the grouped products: two warpgroups, each with half of a tile's rows. Private.
#pragma once

#include "hopper_store.cuh"

namespace tandem::cuda::hopper {

// In the last stage of an expert's rows, the rows of the next expert become zeros, in both
// operands: a factor of zero would still let their infinities and NaNs through. All consumers
// together.
template <Form F>
__device__ __forceinline__ void clear_rows(unsigned char* stage, int first) {
  const int pieces = (kBoxRow - first) * 8;  // of 16 bytes, in one box; swizzling stays in a row
  for (int i = threadIdx.x; i < (kLeftBoxes + kRightBoxes<F>)*pieces; i += kConsumers * kGroup)
    *reinterpret_cast<uint4*>(stage + i / pieces * kBoxBytes + first * 128 + i % pieces * 16) =
        make_uint4(0, 0, 0, 0);
  async_fence();  // hazard: these zeros and the products that read them
  // hazard: the zeros of both warpgroups before either multiplies
  named_sync<kConsumers * kGroup>(1 + kConsumers);
}

// Products of one stage for the rows of warpgroup `group`, left running.
template <Form F, class T>
__device__ __forceinline__ void multiply_stage(Outputs<kTileCols<F>>& d, const unsigned char* stage,
                                               int group, bool first) {
  const std::uint64_t left = operand<kLeftCrossed<F>>(stage + group * kBoxBytes);
  const std::uint64_t right = operand<kRightCrossed<F>>(stage + kLeftBoxes * kBoxBytes);
  pin(d);
  begin_products();  // hazard: other accesses to the outputs' registers and these products
#pragma unroll
  for (int i = 0; i < kTileDepth / 16; ++i)
    multiply_16<T, kLeftCrossed<F>, kRightCrossed<F>>(d, left + i * kNextDepth<kLeftCrossed<F>>,
                                                      right + i * kNextDepth<kRightCrossed<F>>,
                                                      !first || i > 0);
  commit_products();
}

template <Form F>
__device__ __forceinline__ void release_stage(Shared<F>& shared, int slot) {
  if (threadIdx.x % kWarp == 0) Barrier(shared.empty[slot]).arrive();
}

// Waits for the tile's stage that holds depth `l` and makes its operands fit to be multiplied.
template <Form F>
__device__ __forceinline__ unsigned char* await_stage(Shared<F>& shared, const Tile& tile, int l,
                                                      const Cursor<kStages>& stage) {
  // hazard: TMA's writes of this stage before they are read
  Barrier(shared.full[stage.slot]).wait(stage.parity);
  unsigned char* operands = shared.stage[stage.slot];
  if (F == Form::kWeight && tile.depth - l < kTileDepth) clear_rows<F>(operands, tile.depth - l);
  return operands;
}

// What a warpgroup without rows in the tile does: it keeps step with the stages.
template <Form F>
__device__ __forceinline__ void skip_tile(Shared<F>& shared, const Tile& tile,
                                          Cursor<kStages>& stage) {
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    await_stage<F>(shared, tile, l, stage);
    __syncwarp();  // hazard: all lanes' zeros before the warp gives the stage back
    release_stage<F>(shared, stage.slot);
    stage.next();
  }
}

// All products of a tile.
template <Form F, class T>
__device__ __forceinline__ void multiply_tile(Outputs<kTileCols<F>>& d, Shared<F>& shared,
                                              const Tile& tile, int group, Cursor<kStages>& stage) {
  int running = -1;  // the stage whose products may still be running
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    const unsigned char* operands = await_stage<F>(shared, tile, l, stage);
    multiply_stage<F, T>(d, operands, group, l == 0);
    if (running >= 0) {
      wait_products<1>();  // hazard: the previous stage's products before it is given back
      release_stage<F>(shared, running);
    }
    running = stage.slot;
    stage.next();
  }
  wait_products<0>();  // hazard: the last products before outputs and stage are used
  pin(d);
  release_stage<F>(shared, running);
}

// Both consumer warpgroups, until the producer queues a number past the last tile.
template <Form F, class T>
__device__ __forceinline__ void consume(Shared<F>& shared, const Problem& p, T* y, int group) {
  TileWalk<F> walk(shared.table, p);
  Cursor<kStages> stage{.parity = 0};
  Cursor<kQueue> slot{.parity = 0};
  std::uint32_t uses = 0;  // of each of the warpgroup's boxes
  Outputs<kTileCols<F>> d;
  for (;;) {
    // hazard: the producer's write of this slot before it is read
    Barrier(shared.queued[slot.slot]).wait(slot.parity);
    const int number = shared.queue[slot.slot];
    __syncwarp();  // hazard: all lanes' reads of the slot before the warp gives it back
    if (threadIdx.x % kWarp == 0) Barrier(shared.taken[slot.slot]).arrive();
    slot.next();
    if (number >= walk.count()) break;
    const Tile tile = walk.at(number);
    if (tile.row + group * kGroupRows >= tile.height) {
      skip_tile<F>(shared, tile, stage);
      continue;
    }
    multiply_tile<F, T>(d, shared, tile, group, stage);
    if constexpr (F == Form::kWeight) {
      fill_boxes(d, shared, group, uses);
      uses += kAddRounds / kAddPlaces;
    } else {
      store_rows(d, shared.out, y, tile, group, p);
    }
  }
}

}  // namespace tandem::cuda::hopper
