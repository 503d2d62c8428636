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
inline constexpr int kConsumerWarps = kConsumers * kGroup / kWarp;
inline constexpr int kGroupRows = kTileRows / kConsumers;
inline constexpr int kQueue = 4;  // tiles the producer may be ahead
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;  // 64512 of 65536 in all

inline constexpr int kLeftBoxes = kTileRows / kBoxRow;
template <Form F>
inline constexpr int kRightBoxes = kTileCols<F> / kBoxRow;
template <Form F>
inline constexpr int kStageBytes = (kLeftBoxes + kRightBoxes<F>)*kBoxBytes;
static_assert(kTileDepth == kBoxRow && kGroupRows == kBoxRow);

// d_w leaves through shared memory in boxes of 64 rows of 32 floats: for a warpgroup's part of a
// tile so many rounds, through so many places.
inline constexpr int kAddCols = 32, kAddRounds = kTileCols<Form::kWeight> / kAddCols;
inline constexpr int kAddPlaces = 3;
static_assert(kAddRounds % kAddPlaces == 0);
template <Form F>
inline constexpr int kBoxes = F == Form::kWeight ? kConsumers* kAddPlaces : 0;
// Warps that read the queue: the consumers' and, for kWeight, the one that drains the boxes.
template <Form F>
inline constexpr int kQueueReaders = kConsumerWarps + (F == Form::kWeight ? 1 : 0);

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
  alignas(1024) unsigned char out[F == Form::kWeight ? kBoxes<F> * kBoxBytes
                                                     : kConsumerWarps * 16 * 128];
  std::uint64_t full[kStages], empty[kStages], queued[kQueue], taken[kQueue];
  std::uint64_t filled[kBoxes<F> + 1], drained[kBoxes<F> + 1];  // by box; the last is not used
  volatile int queue[kQueue];
  TileTable table;
};
template <Form F>
inline constexpr std::size_t kSharedBytes = sizeof(Shared<F>) + 1024;  // to align it

struct Maps {
  const CUtensorMap &left, &right, &out;
};

}  // namespace tandem::cuda::hopper
