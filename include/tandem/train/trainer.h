// Trainer: one rank's run from first step to last.
#pragma once

#include <functional>

#include "tandem/base/log.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/train/step_report.h"

namespace tandem {

// How a run ended; the same on every rank.
struct TrainResult {
  std::int64_t steps = 0;       // optimizer steps done in total
  std::int64_t first_step = 0;  // of this run: 0, or where it resumed
  double first_loss = 0.0, last_loss = 0.0;
  double first_held_out = 0.0, last_held_out = 0.0;  // nats per token; 0: not evaluated
  std::int64_t traced_steps = 0;                     // in the files of logging.trace
  bool stopped_by_signal = false;
};

// What a caller may watch. Called by the rank's own thread. An exception of on_step or on_save ends
// the run; on_watched, on_own_work and on_told must not throw.
struct TrainHooks {
  std::function<void(const StepReport&)> on_step;  // rank 0, after every step
  // Every rank. true: its watchdog watches from here on, before the first step. false: the run is
  // over, also by an exception; what follows frees its memory.
  std::function<void(bool)> on_watched;
  // Every rank, before on_watched: work that waits for no other rank, and may take long, begins
  // (true) or ends.
  std::function<void(bool)> on_own_work;
  std::function<void()> on_told;  // every rank: its error is logged, or is another rank's to log
  SaveHook on_save;               // every rank, at the stages of a checkpoint
};

// Trains on one rank of `world`. `config` is resolved for world.size(). Blocking, collective.
// On an error: logs it with where every lane stands, aborts the world, drains, and throws.
TrainResult train_rank(World& world, const RunConfig& config, Log& log,
                       const TrainHooks& hooks = {});

}  // namespace tandem
