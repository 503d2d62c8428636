// How the outputs of kWeight get into d_w while the next tile is multiplied. Private.
#pragma once

#include "hopper_shared.cuh"

namespace tandem::cuda::hopper {

// TMA takes its orders one after the other: additions that were all given at once would hold up the
// loads of the next tile for as long as they take.
inline constexpr int kAddsInFlight = 3;
static_assert(kAddsInFlight <= kAddPlaces, "a warpgroup's next box would wait for a later one");

// One thread. Gives the boxes that consumers fill to TMA, few at a time, tile by tile until the
// producer queues a number past the last one.
__device__ __forceinline__ void drain(Shared<Form::kWeight>& shared, const CUtensorMap& d_w,
                                      const Problem& p) {
  TileWalk<Form::kWeight> walk(shared.table, p);
  Cursor<kQueue> slot{.parity = 0};
  std::uint32_t uses[kConsumers] = {};        // of each place of a warpgroup, before this tile
  int adding[kAddsInFlight] = {}, added = 0;  // boxes by number of their addition, modulo
  for (;;) {
    // hazard: the producer's write of this slot before it is read
    Barrier(shared.queued[slot.slot]).wait(slot.parity);
    const int number = shared.queue[slot.slot];
    Barrier(shared.taken[slot.slot]).arrive();
    slot.next();
    if (number >= walk.count()) break;
    const Tile tile = walk.at(number);
    for (int i = 0; i < kConsumers * kAddRounds; ++i) {
      const int group = i % kConsumers, round = i / kConsumers;
      const int row = tile.row + group * kGroupRows, col = tile.col + round * kAddCols;
      if (row >= tile.height) continue;  // this warpgroup has no part in the tile
      const int box = group * kAddPlaces + round % kAddPlaces;
      // hazard: the warpgroup's writes of the box before TMA reads it
      Barrier(shared.filled[box]).wait((uses[group] + round / kAddPlaces) & 1);
      if (col < p.cols) add_box(d_w, {col, row, tile.expert}, shared.out + box * kBoxBytes);
      commit_boxes();  // a group a box, also where nothing is added: the wait below counts groups
      adding[added % kAddsInFlight] = box;
      ++added;
      if (added < kAddsInFlight) continue;
      // hazard: TMA's reads of the oldest box before the warpgroup overwrites it
      wait_boxes_read<kAddsInFlight - 1>();
      Barrier(shared.drained[adding[added % kAddsInFlight]]).arrive();
    }
    for (int group = 0; group < kConsumers; ++group)
      if (tile.row + group * kGroupRows < tile.height) uses[group] += kAddRounds / kAddPlaces;
  }
  // hazard: TMA's additions to d_w and whoever reads it after this kernel
  wait_boxes_written();
}

}  // namespace tandem::cuda::hopper
