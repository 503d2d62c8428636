// Engine: everything one rank owns for a run, built in order of dependence and torn down in
// reverse.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/data/batch_source.h"
#include "tandem/nn/params.h"
#include "tandem/optim/loss_scale.h"
#include "tandem/optim/optimizer.h"
#include "tandem/plan/grid.h"
#include "tandem/plan/partition.h"
#include "tandem/runtime/executor.h"
#include "tandem/schedule/lower.h"
#include "tandem/train/batch_loader.h"

namespace tandem {

// The programs of all stages, proven sound. The longer the step, the longer it takes.
std::vector<Program> sound_programs(const RunConfig& config, ProgramKind kind);

class Engine {
 public:
  // Compares the hashes of the programs over the ranks, makes the communicators, initialises the
  // parameters, opens the data. `programs`: sound_programs for training. Collective.
  Engine(World& world, const RunConfig& config, std::vector<Program> programs, Log& log);

  struct StepResult {
    double loss_sum, aux, grad_norm;  // without the loss scale
  };
  // Loads the batches of a step, which counts from 0. Collective.
  StepInput step_input(std::int64_t step, double lr);
  StepResult train_step(const StepInput& input);
  // Before an evaluation; the first call builds and proves its program, which may take long. Waits
  // for nobody.
  void prepare_evaluation();
  double evaluate();  // mean held-out loss; collective
  // Runs the forward and backward of `step` again, node by node, and says where the first value
  // that is not finite appears on this rank; empty if nowhere, or if another rank holds a parameter
  // that is not finite. Collective.
  std::string find_non_finite(std::int64_t step);
  // Names what training steps enqueue, while set; not owned, nullptr ends it.
  void set_profiler(Profiler* profiler) { executor_.set_profiler(profiler); }
  void drain() noexcept;  // after an abort: waits for the lanes

  [[nodiscard]] const Program& program() const { return programs_[stage_]; }
  [[nodiscard]] std::int64_t memory_bytes() const;

  World& world;
  const RunConfig config;
  const RankGrid grid;
  const Partition partition;

 private:
  const std::size_t stage_;
  const std::vector<Program> programs_;  // of all stages

 public:
  std::unique_ptr<Device> device;
  BatchSources data;
  Lanes lanes;
  RankComms comms;
  Params params;
  Optimizer optimizer;
  LossScaler loss_scaler;
  Timeline timeline;

 private:
  std::span<const BatchView> load(BatchLoader& loader, BatchSource& source,
                                  const std::vector<std::int64_t>& first);
  std::string find_non_finite_parameter();

  Program evaluation_;
  Executor executor_;
  std::unique_ptr<Executor> evaluator_;  // made by prepare_evaluation
  BatchLoader batches_, evaluation_batches_;

 public:
  [[nodiscard]] const Executor& executor() const { return executor_; }
};

}  // namespace tandem
