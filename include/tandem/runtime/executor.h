// The executor replays a program: one loop over its instructions that makes no decision of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/device/profiler.h"
#include "tandem/nn/node_ctx.h"
#include "tandem/optim/optimizer.h"
#include "tandem/plan/partition.h"
#include "tandem/runtime/lanes.h"
#include "tandem/runtime/rank_comms.h"
#include "tandem/runtime/scratch_arena.h"
#include "tandem/runtime/slot_memory.h"
#include "tandem/runtime/timeline.h"
#include "tandem/schedule/program.h"

namespace tandem {

// What a rank owns for its whole life; the executor borrows it.
struct RankState {
  const RunConfig& config;
  const ModelDims dims;
  Device& device;
  Lanes& lanes;
  RankComms& comms;
  Params& params;
  Optimizer& optimizer;
  Timeline& timeline;
};

struct StepInput {
  std::span<const BatchView> batches;  // by micro-batch; empty views on stages that need none
  bool training = true;
  float loss_scale = 0.0F;  // 1 / tokens of the global batch
  float aux_scale = 0.0F;   // 1 / micro-batches of the global batch
  // What backward multiplies every gradient with and the optimizer divides by: a power of two.
  float grad_factor = 1.0F;
  double lr = 0.0;
  std::int64_t step = 1;  // of the optimizer, counts from 1
};

class Executor {
 public:
  // `program` is a checked program of this rank's stage and outlives the executor.
  Executor(RankState state, const Program& program);
  ~Executor();

  // Enqueues the whole step and waits until every lane is idle. Throws the first error of a lane.
  void run(const StepInput& input);

  // Of the last run, on the host:
  [[nodiscard]] double loss_sum() const;  // sum of token losses (ranks with the head)
  [[nodiscard]] double aux_loss()
      const;  // weighted auxiliary and z loss, mean over micro-batches of this rank
  // Rows sent to each expert, [layers][experts] of this rank's layers by global number; dense: 0.
  [[nodiscard]] const std::vector<std::int64_t>& expert_load() const;
  [[nodiscard]] const SlotMemory& memory() const;
  [[nodiscard]] std::size_t scratch_bytes() const;

  // Called after every RUN with its own lane idle, while set: for finding where a value went wrong.
  using NodeHook = std::function<void(const Instr&, std::span<const BoundSlot>)>;
  void set_hook(NodeHook hook);
  // While set, every instruction that is enqueued is a range; not owned, nullptr ends it.
  void set_profiler(Profiler* profiler);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
