// Hopper's instructions for moving tiles, one small function each. Private to the grouped products.
//
// Two kinds of access meet in shared memory: the generic one of threads and the asynchronous one of
// TMA and wgmma. A barrier alone does not order one kind after the other; async_fence() does.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::cuda::hopper {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Generic writes of this thread to shared memory become visible to TMA and wgmma.
__device__ __forceinline__ void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A hardware barrier for `Threads` threads; id 0 belongs to __syncthreads.
template <int Threads>
__device__ __forceinline__ void named_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(Threads) : "memory");
}

// An mbarrier in shared memory. Its phases alternate in parity; wait(p) returns once the phase of
// parity p has completed, so on a fresh barrier wait(1) returns at once. Arrivals release, waits
// acquire.
class Barrier {
 public:
  __device__ explicit Barrier(const std::uint64_t& at) : at_(shared_address(&at)) {}

  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at_), "r"(arrivals) : "memory");
  }
  __device__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at_) : "memory");
  }
  // One arrival; the phase also waits for `bytes` bytes of TMA.
  __device__ void arrive_expecting(std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at_), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(std::uint32_t parity) const {
    while (!completed(parity)) {
    }
  }
  [[nodiscard]] __device__ std::uint32_t address() const { return at_; }

 private:
  __device__ bool completed(std::uint32_t parity) const {
    std::uint32_t done = 0;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(at_), "r"(parity)
        : "memory");
    return done != 0;
  }
  std::uint32_t at_;
};

// Makes initialised barriers visible to TMA.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  async_fence();
}

// A place in a ring of Slots, and the parity its barriers have on this round.
template <int Slots>
struct Cursor {
  int slot = 0;
  std::uint32_t parity;

  __device__ void next() {
    if (++slot == Slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ void skip(int places) {
    slot += places;
    parity ^= slot / Slots & 1;
    slot %= Slots;
  }
};

// Tensor maps are three-dimensional: column, row, matrix. What a box reads beyond a bound is zero,
// what it would write there is dropped; its bytes count in full either way.
struct BoxAt {
  int col, row, matrix;
};

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void load_box(void* to, const CUtensorMap& map, BoxAt at, Barrier full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(&map), "r"(at.col), "r"(at.row), "r"(at.matrix), "r"(full.address())
      : "memory");
}

__device__ __forceinline__ void prefetch_box(const CUtensorMap& map, BoxAt at) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map),
               "r"(at.col), "r"(at.row), "r"(at.matrix)
               : "memory");
}

// Copies a box of floats to memory.
__device__ __forceinline__ void store_box(const CUtensorMap& map, BoxAt at, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
          &map),
      "r"(at.col), "r"(at.row), "r"(at.matrix), "r"(shared_address(from))
      : "memory");
}

// Adds a box of floats to memory.
__device__ __forceinline__ void add_box(const CUtensorMap& map, BoxAt at, const void* from) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(at.col), "r"(at.row), "r"(at.matrix), "r"(shared_address(from))
      : "memory");
}

// Ends a group of stored and added boxes, which may be empty.
__device__ __forceinline__ void commit_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until at most Pending of this thread's groups still read shared memory.
template <int Pending>
__device__ __forceinline__ void wait_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// Until all of this thread's groups have written global memory.
__device__ __forceinline__ void wait_boxes_written() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lanes 8 i .. 8 i + 7 give the rows of matrix i.
__device__ __forceinline__ void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

// Moves registers between warpgroups: what the producer gives up the consumers take.
template <int Registers>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace tandem::cuda::hopper
