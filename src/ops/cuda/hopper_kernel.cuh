// The grouped products' kernel for sm_90a: persistent blocks of one producer and two consumer
// warpgroups. Private.
//
// One producer thread draws tiles, hands them to the consumers through a short queue, and loads the
// operands stage by stage; each consumer warpgroup multiplies 64 of the tile's 128 rows and stores
// them. Every output is written by one block, so the order of all sums is fixed.
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

inline constexpr int kLeftBoxes = kTileRows / kBoxRow, kRightBoxes = kTileCols / kBoxRow;
inline constexpr int kStageBytes = (kLeftBoxes + kRightBoxes) * kBoxBytes;
static_assert(kTileDepth == kBoxRow && kGroupRows == kBoxRow);

// d_w leaves through shared memory in boxes of 64 rows of 32 floats, four in flight a warpgroup.
inline constexpr int kAddCols = 32, kAddBoxes = 4;

// What one launch of a stream leaves for the next: zeros. Launches in flight may not share one.
struct TileCounter {
  unsigned drawn, finished;
};

template <Form F>
inline constexpr bool kLeftCrossed = F == Form::kWeight;
template <Form F>
inline constexpr bool kRightCrossed = F != Form::kForward;
template <Form F>
inline constexpr int kStages = F == Form::kWeight ? 3 : 4;

template <Form F>
struct Shared {
  alignas(1024) unsigned char stage[kStages<F>][kStageBytes];
  alignas(1024) unsigned char out[F == Form::kWeight ? kConsumers * kAddBoxes * kBoxBytes
                                                     : kConsumerWarps * 16 * 128];
  std::uint64_t full[kStages<F>], empty[kStages<F>], queued[kQueue], taken[kQueue];
  volatile int queue[kQueue];
  TileTable table;
};
template <Form F>
inline constexpr std::size_t kSharedBytes = sizeof(Shared<F>) + 1024;  // to align it

struct Maps {
  const CUtensorMap &left, &right, &out;
};

// The operands of one stage: columns of output and depth as the maps have them.
template <Form F>
__device__ __forceinline__ void load_stage(unsigned char* stage, const Maps& maps, const Tile& tile,
                                           int l, Barrier full) {
  full.arrive_expecting(kStageBytes);
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
    for (int i = 0; i < kRightBoxes; ++i)
      load_box(stage + i * kBoxBytes, maps.right, {tile.col + i * kBoxRow, row, matrix}, full);
  } else {
    load_box(stage, maps.right, {l, tile.col, tile.expert}, full);
  }
}

// Adding to d_w reads it in L2; fetching it there while the products run hides memory's latency.
__device__ __forceinline__ void prefetch_sums(const CUtensorMap& map, const Tile& tile,
                                              const Problem& p) {
  for (int col = tile.col; col < min(tile.col + kTileCols, p.cols); col += kAddCols)
    for (int row = tile.row; row < min(tile.row + kTileRows, p.height); row += kGroupRows)
      prefetch_box(map, {col, row, tile.expert});
}

// One thread. The first tile is the block's own number, the others are drawn, so a block that
// starts late or runs slowly holds nobody up.
template <Form F>
__device__ __forceinline__ void produce(Shared<F>& shared, const Maps& maps, const Problem& p,
                                        TileCounter* counter) {
  TileWalk<F> walk(shared.table, p);
  Cursor<kStages<F>> stage{.parity = 1};
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
    if constexpr (F == Form::kWeight) prefetch_sums(maps.out, tile, p);
    for (int l = 0; l < tile.depth; l += kTileDepth) {
      // hazard: the consumers' products from this stage before it is loaded again
      Barrier(shared.empty[stage.slot]).wait(stage.parity);
      load_stage<F>(shared.stage[stage.slot], maps, tile, l, Barrier(shared.full[stage.slot]));
      stage.next();
    }
    number = next;
  }
  // The last block to finish leaves the counter as it was found.
  __threadfence();  // hazard: this block's draws before its count as finished
  if (atomicAdd(&counter->finished, 1U) == gridDim.x - 1) *counter = {0, 0};
}

// In the last stage of an expert's rows, the rows of the next expert become zeros, in both
// operands: a factor of zero would still let their infinities and NaNs through. All consumers
// together.
__device__ __forceinline__ void clear_rows(unsigned char* stage, int first) {
  const int pieces = (kBoxRow - first) * 8;  // of 16 bytes, in one box; swizzling stays in a row
  for (int i = threadIdx.x; i < (kLeftBoxes + kRightBoxes) * pieces; i += kConsumers * kGroup)
    *reinterpret_cast<uint4*>(stage + i / pieces * kBoxBytes + first * 128 + i % pieces * 16) =
        make_uint4(0, 0, 0, 0);
  async_fence();  // hazard: these zeros and the products that read them
  // hazard: the zeros of both warpgroups before either multiplies
  named_sync<kConsumers * kGroup>(1 + kConsumers);
}

// Products of one stage for the rows of warpgroup `group`, left running.
template <Form F>
__device__ __forceinline__ void multiply_stage(Outputs& d, const unsigned char* stage, int group,
                                               bool first) {
  const std::uint64_t left = operand<kLeftCrossed<F>>(stage + group * kBoxBytes);
  const std::uint64_t right = operand<kRightCrossed<F>>(stage + kLeftBoxes * kBoxBytes);
  pin(d);
  begin_products();  // hazard: other accesses to the outputs' registers and these products
#pragma unroll
  for (int i = 0; i < kTileDepth / 16; ++i)
    multiply_16<kLeftCrossed<F>, kRightCrossed<F>>(d, left + i * kNextDepth<kLeftCrossed<F>>,
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
                                                      const Cursor<kStages<F>>& stage) {
  // hazard: TMA's writes of this stage before they are read
  Barrier(shared.full[stage.slot]).wait(stage.parity);
  unsigned char* operands = shared.stage[stage.slot];
  if (F == Form::kWeight && tile.depth - l < kTileDepth) clear_rows(operands, tile.depth - l);
  return operands;
}

// What a warpgroup without rows in the tile does: it keeps step with the stages.
template <Form F>
__device__ __forceinline__ void skip_tile(Shared<F>& shared, const Tile& tile,
                                          Cursor<kStages<F>>& stage) {
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    await_stage<F>(shared, tile, l, stage);
    __syncwarp();  // hazard: all lanes' zeros before the warp gives the stage back
    release_stage<F>(shared, stage.slot);
    stage.next();
  }
}

// All products of a tile.
template <Form F>
__device__ __forceinline__ void multiply_tile(Outputs& d, Shared<F>& shared, const Tile& tile,
                                              int group, Cursor<kStages<F>>& stage) {
  int running = -1;  // the stage whose products may still be running
  for (int l = 0; l < tile.depth; l += kTileDepth) {
    const unsigned char* operands = await_stage<F>(shared, tile, l, stage);
    multiply_stage<F>(d, operands, group, l == 0);
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

// Rounds to bf16 and stores the rows inside the expert, 64 columns at a time by way of shared
// memory: a warp's outputs lie in 2-element pieces, memory wants whole lines.
__device__ __forceinline__ void store_rows(const Outputs& d, unsigned char* out, bf16* y,
                                           const Tile& tile, int group, const Problem& p) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kGroup / kWarp;
  unsigned char* mine = out + threadIdx.x / kWarp * 16 * 128;  // 16 rows of 64 columns, swizzled
  const auto piece = [&](int row, int eight) {
    return mine + row * 128 + ((eight ^ (row & 7)) << 4);
  };
  const int first = tile.row + group * kGroupRows + warp * 16;
  bf16* rows = y + std::int64_t{tile.first_row + first} * p.cols;
#pragma unroll
  for (int q = 0; q < kTileCols / 64; ++q) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {  // two blocks of 8 columns, each of two blocks of 8 rows
      std::uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (q * 8 + j) * 4 + 2 * i;
        const __nv_bfloat162 pair = __floats2bfloat162_rn(d.v[at], d.v[at + 1]);
        r[i] = reinterpret_cast<const std::uint32_t&>(pair);
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

// Adds the outputs to d_w: boxes in shared memory, TMA does the additions and drops what lies
// outside the expert's matrix.
__device__ __forceinline__ void add_rows(const Outputs& d, unsigned char* out,
                                         const CUtensorMap& map, const Tile& tile, int group,
                                         const Problem& p) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kGroup / kWarp;
  const bool leader = threadIdx.x % kGroup == 0;
  const int row = warp * 16 + lane / 4;  // and 8 below
#pragma unroll
  for (int q = 0; q < kTileCols / kAddCols; ++q) {
    const int col = tile.col + q * kAddCols;
    unsigned char* box = out + (group * kAddBoxes + q % kAddBoxes) * kBoxBytes;
    // hazard: TMA's reads of the box that was here before the warpgroup overwrites it
    if (leader) wait_boxes_read<kAddBoxes - 1>();
    named_sync<kGroup>(1 + group);
#pragma unroll
    for (int j = 0; j < kAddCols / 8; ++j) {
      const int at = (q * 4 + j) * 4, four = 2 * j + lane % 4 / 2;
      unsigned char* to = box + row * 128 + ((four ^ (row & 7)) << 4) + lane % 2 * 8;
      *reinterpret_cast<float2*>(to) = make_float2(d.v[at], d.v[at + 1]);
      *reinterpret_cast<float2*>(to + 8 * 128) = make_float2(d.v[at + 2], d.v[at + 3]);
    }
    async_fence();                  // hazard: this thread's writes of the box and TMA's reads
    named_sync<kGroup>(1 + group);  // hazard: all threads' writes before the leader starts TMA
    if (!leader) continue;
    if (col < p.cols) add_box(map, {col, tile.row + group * kGroupRows, tile.expert}, box);
    commit_boxes();  // a group a box, also where there is none to add: the waits above count groups
  }
}

// Both consumer warpgroups, until the producer queues a number past the last tile.
template <Form F>
__device__ __forceinline__ void consume(Shared<F>& shared, const Maps& maps, const Problem& p,
                                        bf16* y, int group) {
  TileWalk<F> walk(shared.table, p);
  Cursor<kStages<F>> stage{.parity = 0};
  Cursor<kQueue> slot{.parity = 0};
  Outputs d;
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
    multiply_tile<F>(d, shared, tile, group, stage);
    if constexpr (F == Form::kWeight) {
      add_rows(d, shared.out, maps.out, tile, group, p);
    } else {
      store_rows(d, shared.out, y, tile, group, p);
    }
  }
  // hazard: TMA's additions to d_w and whoever reads it after this kernel
  if (F == Form::kWeight && threadIdx.x % kGroup == 0) wait_boxes_written();
}

template <Form F>
__device__ __forceinline__ void init_barriers(Shared<F>& shared) {
  for (int i = 0; i < kStages<F>; ++i) {
    Barrier(shared.full[i]).init(1);
    Barrier(shared.empty[i]).init(kConsumerWarps);
  }
  for (int i = 0; i < kQueue; ++i) {
    Barrier(shared.queued[i]).init(1);
    Barrier(shared.taken[i]).init(kConsumerWarps);
  }
  barrier_init_fence();  // hazard: the barriers' first state and TMA's first arrival
}

// y: output of kForward and kBackwardInput. out: the map of d_w in kWeight, else not used.
template <Form F>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_product(const __grid_constant__ CUtensorMap left,
                    const __grid_constant__ CUtensorMap right,
                    const __grid_constant__ CUtensorMap out, const int* __restrict__ offsets,
                    const Problem p, bf16* y, TileCounter* counter) {
// Compiled for other GPUs too when the build asks for them; only Hopper is ever given it.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  const auto base = reinterpret_cast<std::uintptr_t>(raw);
  auto& shared = *reinterpret_cast<Shared<F>*>(raw + ((1024 - base % 1024) % 1024));
  const Maps maps{left, right, out};
  if (threadIdx.x == 0) {
    init_barriers(shared);
    prefetch_map(left);
    prefetch_map(right);
    if constexpr (F == Form::kWeight) prefetch_map(out);
  }
  fill_table<F>(shared.table, offsets, p);  // also orders init_barriers before all waits
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == kConsumers) {
    shrink_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers * kGroup) produce<F>(shared, maps, p, counter);
  } else {
    grow_registers<kConsumerRegisters>();
    consume<F>(shared, maps, p, y, group);
  }
#endif
}

}  // namespace tandem::cuda::hopper
