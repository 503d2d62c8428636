// The consumers of kWeight: two warpgroups that take tiles in turn (a ping-pong schedule). While
// one hands its outputs over, which costs about as much of memory's time as the products cost of
// the tensor cores', the other one multiplies. Each of the two works is passed on from tile to
// tile: a wait for a barrier's parity is right only while the barrier is less than two phases
// behind. Private.
#pragma once

#include "hopper_consumer.cuh"

namespace tandem::cuda::hopper {

// A work that the two warpgroups do by turns, tile for tile. Thread by thread.
class Turns {
 public:
  __device__ Turns(std::uint64_t (&barriers)[kConsumers], int group)
      : mine_(barriers[group]), others_(barriers[1 - group]), parity_(1 - group) {}

  // Until the other warpgroup has passed on the tile before.
  __device__ void await() {
    mine_.wait(parity_);
    parity_ ^= 1;
  }
  __device__ void pass_on() const { others_.arrive(); }

 private:
  const Barrier mine_, others_;
  std::uint32_t parity_;
};

// In the last stage of an expert's rows, the rows of the next expert become zeros, in both
// operands: a factor of zero would still let their infinities and NaNs through. All of a warpgroup.
__device__ __forceinline__ void clear_rows(unsigned char* stage, int first, int group) {
  constexpr int kStageBoxes = kLeftBoxes + kRightBoxes<Form::kWeight>;
  const int pieces = (kBoxRow - first) * 8;  // of 16 bytes, in one box; swizzling stays in a row
  for (int i = threadIdx.x % kGroup; i < kStageBoxes * pieces; i += kGroup)
    *reinterpret_cast<uint4*>(stage + i / pieces * kBoxBytes + first * 128 + i % pieces * 16) =
        make_uint4(0, 0, 0, 0);
  async_fence();                  // hazard: these zeros and the products that read them
  named_sync<kGroup>(1 + group);  // hazard: all threads' zeros before any warp multiplies
}

// Prepares a stage: of the expert's own rows nothing changes.
struct OwnRowsOnly {
  int group;
  __device__ void operator()(unsigned char* stage, int depth) const {
    if (depth < kTileDepth) clear_rows(stage, depth, group);
  }
};

// All products of a tile.
template <class T>
__device__ __forceinline__ void multiply_tile(TileSums<Form::kWeight>& d,
                                              Shared<Form::kWeight>& shared, const Tile& tile,
                                              int group, Turns& turns, Cursor<kStages>& stage) {
  turns.await();  // hazard: the other's stages loaded before the parity of this tile's is asked
  const int last = multiply_stages<Form::kWeight, T>(d, shared, tile, 0, stage, OwnRowsOnly{group});
  turns.pass_on();
  end_products<Form::kWeight>(d, shared, last);
}

// Fills the places with the outputs, each as soon as it is drained.
__device__ __forceinline__ void fill_places(const TileSums<Form::kWeight>& d,
                                            Shared<Form::kWeight>& shared) {
  constexpr int kRounds = kPlaces<Form::kWeight>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kGroup / kWarp;
  const int row = warp * 16 + lane / 4;  // and 8 below
#pragma unroll
  for (int half = 0; half < kSumHalves; ++half) {
#pragma unroll
    for (int place = 0; place < kRounds; ++place) {
      unsigned char* box = shared.out + place * kBoxBytes;
      // hazard: TMA's reads of the box that was here before it is overwritten
      Barrier(shared.drained[place]).wait((half + 1) & 1);
#pragma unroll
      for (int j = 0; j < kSumCols / 8; ++j) {
        const int at = (place * kSumCols / 8 + j) * 4, four = 2 * j + lane % 4 / 2;
        unsigned char* to = box + row * 128 + ((four ^ (row & 7)) << 4) + lane % 2 * 8;
        const float* v = d.part[half].v + at;
        *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
        *reinterpret_cast<float2*>(to + 8 * 128) = make_float2(v[2], v[3]);
      }
      async_fence();  // hazard: this thread's writes of the box and TMA's reads
      __syncwarp();   // hazard: all lanes' writes before the warp reports the box
      if (lane == 0) Barrier(shared.filled[place]).arrive();
    }
  }
}

// A consumer warpgroup, until the producer queues a number past the last tile.
template <class T>
__device__ __forceinline__ void consume_in_turn(Shared<Form::kWeight>& shared, const Problem& p,
                                                int group) {
  static_assert(kConsumers == 2 && kSumHalves == 2, "turns and places alternate in parity");
  TileWalk<Form::kWeight> walk(shared.table, p);
  Cursor<kStages> stage{.parity = 0};
  Cursor<kQueue> slot{.parity = 0};
  Turns multiply(shared.may_multiply, group), fill(shared.may_fill, group);
  TileSums<Form::kWeight> d;
  for (bool mine = group == 0;; mine = !mine) {
    const int number = next_number<Form::kWeight>(shared, slot);
    if (number >= walk.count()) break;
    const Tile tile = walk.at(number);
    if (!mine) {
      stage.skip(ceil_div(tile.depth, kTileDepth));
      continue;
    }
    multiply_tile<T>(d, shared, tile, group, multiply, stage);
    fill.await();  // hazard: the other's boxes in all places before their parity is asked
    fill_places(d, shared);
    fill.pass_on();
  }
}

}  // namespace tandem::cuda::hopper
