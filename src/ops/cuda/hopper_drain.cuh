// How the outputs of kWeight get into d_w while the next tile is multiplied. Private.
#pragma once

#include "hopper_shared.cuh"

namespace tandem::cuda::hopper {

// TMA takes its orders one after the other: boxes that were all handed over at once would hold up
// the loads of the next tile for as long as they take.
inline constexpr int kBoxesInFlight = 3;
static_assert(kBoxesInFlight <= kPlaces<Form::kWeight>, "the next box would wait for a later one");

// One thread. Hands the boxes that consumers fill to TMA, few at a time, tile by tile until the
// producer queues a number past the last one.
__device__ __forceinline__ void drain(Shared<Form::kWeight>& shared, const CUtensorMap& d_w,
                                      const Problem& p) {
  constexpr int kRounds = kPlaces<Form::kWeight>;
  TileWalk<Form::kWeight> walk(shared.table, p);
  Cursor<kQueue> slot{.parity = 0};
  int handed[kBoxesInFlight] = {}, count = 0;  // places by number of their box, modulo
  for (;;) {
    const int number = take_number<Form::kWeight>(shared, slot);
    slot.next();
    if (number >= walk.count()) break;
    const Tile tile = walk.at(number);
    for (int i = 0; i < kSumHalves * kRounds; ++i) {
      const int half = i / kRounds, place = i % kRounds;
      const BoxAt at{tile.col + place * kSumCols, tile.row + half * kBoxRow, tile.expert};
      const unsigned char* box = shared.out + place * kBoxBytes;
      // hazard: the warpgroup's writes of the box before TMA reads it
      Barrier(shared.filled[place]).wait(half & 1);
      if (at.col < p.cols && at.row < tile.height) {
        if (p.accumulate)
          add_box(d_w, at, box);
        else
          store_box(d_w, at, box);
      }
      commit_boxes();  // a group a box, also where nothing is stored: the wait below counts groups
      handed[count % kBoxesInFlight] = place;
      ++count;
      if (count < kBoxesInFlight) continue;
      // hazard: TMA's reads of the oldest box before a warpgroup overwrites it
      wait_boxes_read<kBoxesInFlight - 1>();
      Barrier(shared.drained[handed[count % kBoxesInFlight]]).arrive();
    }
  }
  // hazard: TMA's writes of d_w and whoever reads it after this kernel
  wait_boxes_written();
}

}  // namespace tandem::cuda::hopper
