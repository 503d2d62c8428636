// What a block of the grouped products shares: sizes, stages, barriers, the queue of tiles.
// Private.
#pragma once

#include "hopper_ptx.cuh"
#include "hopper_tiles.cuh"
#include "hopper_wgmma.cuh"

namespace tandem::cuda::hopper {

inline constexpr int kGroup = 128;    // threads of a warpgroup
inline constexpr int kConsumers = 2;  // warpgroups 0 and 1; the producer is the last
inline constexpr int kThreads = (kConsumers + 1) * kGroup;
inline constexpr int kGroupWarps = kGroup / kWarp;
inline constexpr int kConsumerWarps = kConsumers * kGroupWarps;
inline constexpr int kGroupRows = kTileRows / kConsumers;  // where both share a tile
inline constexpr int kQueue = 4;                           // tiles the producer may be ahead
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;  // 64512 of 65536 in all

inline constexpr int kLeftBoxes = kTileRows / kBoxRow;
template <Form F>
inline constexpr int kRightBoxes = kTileCols<F> / kBoxRow;
template <Form F>
inline constexpr int kStageBytes = (kLeftBoxes + kRightBoxes<F>)*kBoxBytes;
static_assert(kTileDepth == kBoxRow && kGroupRows == kBoxRow);

// d_w leaves through shared memory in boxes of 64 rows of 32 floats: the upper half of a tile box
// by box, then the lower one, each box by the place of its columns.
inline constexpr int kSumCols = 32, kSumHalves = kTileRows / kBoxRow;
template <Form F>
inline constexpr int kPlaces = F == Form::kWeight ? kTileCols<F> / kSumCols : 0;
// Warps that read the queue: the consumers' and, for kWeight, the one that drains the places.
template <Form F>
inline constexpr int kQueueReaders = kConsumerWarps + (F == Form::kWeight ? 1 : 0);
// Warps that read a stage: in kWeight only those of the warpgroup that has the tile.
template <Form F>
inline constexpr int kStageReaders = F == Form::kWeight ? kGroupWarps : kConsumerWarps;

// What one launch of a stream leaves for the next: zeros. Launches in flight may not share one.
struct TileCounter {
  unsigned drawn, finished;
};

template <Form F>
inline constexpr bool kLeftCrossed = F == Form::kWeight;
template <Form F>
inline constexpr bool kRightCrossed = F != Form::kForward;
inline constexpr int kStages = 4;

template <Form F>
struct Shared {
  alignas(1024) unsigned char stage[kStages][kStageBytes<F>];
  alignas(1024) unsigned char out[F == Form::kWeight ? kPlaces<F> * kBoxBytes
                                                     : kConsumerWarps * 16 * 128];
  std::uint64_t full[kStages], empty[kStages], queued[kQueue], taken[kQueue];
  std::uint64_t may_multiply[kConsumers], may_fill[kConsumers];   // turns of the warpgroups
  std::uint64_t filled[kPlaces<F> + 1], drained[kPlaces<F> + 1];  // the last is not used
  volatile int queue[kQueue];
  TileTable table;
};
template <Form F>
inline constexpr std::size_t kSharedBytes = sizeof(Shared<F>) + 1024;  // to align it

// One thread of a reading warp: the number in the slot, which the warp then has no more use for.
template <Form F>
__device__ __forceinline__ int take_number(Shared<F>& shared, const Cursor<kQueue>& slot) {
  // hazard: the producer's write of this slot before it is read
  Barrier(shared.queued[slot.slot]).wait(slot.parity);
  const int number = shared.queue[slot.slot];
  Barrier(shared.taken[slot.slot]).arrive();
  return number;
}

// The next tile's number, for every thread of a warp.
template <Form F>
__device__ __forceinline__ int next_number(Shared<F>& shared, Cursor<kQueue>& slot) {
  int number = 0;
  if (threadIdx.x % kWarp == 0) number = take_number<F>(shared, slot);
  slot.next();
  return __shfl_sync(kFullWarp, number, 0);
}

struct Maps {
  const CUtensorMap &left, &right, &out;
};

}  // namespace tandem::cuda::hopper
