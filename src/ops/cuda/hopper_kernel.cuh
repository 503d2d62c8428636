// The grouped products' kernel for sm_90a: persistent blocks of one producer and two consumer
// warpgroups. Private.
//
// One producer thread draws tiles, hands them to the consumers through a short queue, and loads the
// operands stage by stage. Each consumer warpgroup multiplies 64 of the tile's 128 rows and stores
// them; or they take tiles in turn and leave the outputs to one thread, which adds them to d_w while
// the next tile is multiplied. Every output is written by one block, so the order of all sums is
// fixed.
#pragma once

#include "hopper_consumer.cuh"
#include "hopper_drain.cuh"
#include "hopper_producer.cuh"
#include "hopper_weight.cuh"

namespace tandem::cuda::hopper {

template <Form F>
__device__ __forceinline__ void init_barriers(Shared<F>& shared) {
  for (int i = 0; i < kStages; ++i) {
    Barrier(shared.full[i]).init(1);
    Barrier(shared.empty[i]).init(kStageReaders<F>);
  }
  for (int i = 0; i < kQueue; ++i) {
    Barrier(shared.queued[i]).init(1);
    Barrier(shared.taken[i]).init(kQueueReaders<F>);
  }
  for (int i = 0; i < kConsumers; ++i) {
    Barrier(shared.may_multiply[i]).init(kGroup);
    Barrier(shared.may_fill[i]).init(kGroup);
  }
  for (int i = 0; i < kPlaces<F>; ++i) {
    Barrier(shared.filled[i]).init(kGroupWarps);
    Barrier(shared.drained[i]).init(1);
  }
  barrier_init_fence();  // hazard: the barriers' first state and TMA's first arrival
}

// T: of the operands and of y, bf16 or f16. y: output of kForward and kBackwardInput. out: the map
// of d_w in kWeight, else not used.
template <Form F, class T>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_product(const __grid_constant__ CUtensorMap left,
                    const __grid_constant__ CUtensorMap right,
                    const __grid_constant__ CUtensorMap out, const int* __restrict__ offsets,
                    const Problem p, T* y, TileCounter* counter) {
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
    if constexpr (F == Form::kWeight)
      if (threadIdx.x == kConsumers * kGroup + kWarp) drain(shared, maps.out, p);
  } else {
    grow_registers<kConsumerRegisters>();
    if constexpr (F == Form::kWeight)
      consume_in_turn<T>(shared, p, group);
    else
      consume<F, T>(shared, p, y, group);
  }
#endif
}

}  // namespace tandem::cuda::hopper
