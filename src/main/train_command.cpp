#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "amounts.h"
#include "commands.h"
#include "output_file.h"
#include "ranks.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/units.h"
#include "tandem/comm/world.h"
#include "tandem/config/load.h"
#include "tandem/model/params.h"
#include "tandem/trace/trace.h"
#include "tandem/train/job_guard.h"
#include "tandem/train/signals.h"
#include "tandem/train/step_report.h"
#include "tandem/train/trainer.h"

namespace tandem {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void print_start(const RunConfig& config, Log& log) {
  const ParamCount count = count_params(config.model);
  log.note("model    {} layers, hidden {}, {} experts top-{}, {} parameters, {} active",
           config.model.layers, config.model.hidden, config.model.experts, config.model.topk,
           parameters(count.total), parameters(count.active));
  log.note(
      "layout   pp {} x vpp {}, dp {}, ep {}; {} of {} x {} tokens; overlap {}, {} "
      "events, weight gradients {}",
      config.parallel.pp, config.parallel.vpp, config.parallel.dp, config.parallel.ep,
      counted(config.microbatches(), "micro-batch"), config.train.micro_batch, config.train.seq_len,
      config.overlap.enabled ? "on" : "off",
      config.overlap.events == EventMode::kShared ? "shared" : "per-direction",
      config.overlap.delay_wgrad ? "delayed" : "in place");
}

void print_end(const TrainResult& result, const RunConfig& config, double seconds, Log& log) {
  log.note("");
  if (result.steps == result.first_step && !result.stopped_by_signal) {
    log.note(
        "done     nothing to do: {} already holds all {} steps; raise train.steps, or choose "
        "another checkpoint.dir to start afresh",
        config.checkpoint.dir, result.steps);
    return;
  }
  log.note("done     {} in {}{}", counted(result.steps - result.first_step, "step"),
           duration(seconds), result.stopped_by_signal ? ", stopped by a signal" : "");
  if (result.traced_steps > 0) {
    const int ranks = config.world();
    log.note("trace    {}{}", trace_file(config.logging.trace, 0),
             ranks == 1 ? "" : fmt::format(" to {}", trace_file(config.logging.trace, ranks - 1)));
  }
  log.note("loss     {:.4f} -> {:.4f}", result.first_loss, result.last_loss);
  if (result.last_held_out != result.first_held_out)
    log.note("held-out {:.4f} -> {:.4f} nats per token", result.first_held_out,
             result.last_held_out);
}

// One rank with its config, start to end.
ExitCode train_one(World& world, const RunConfig& config, Log& log, JobGuard& guard) {
  if (config.logging.format == LogFormat::kJson) log.notes_to_stderr();
  if (world.rank() == 0) print_start(config, log);
  const double begin = wall_seconds();
  const TrainResult result = train_rank(world, config, log, hooks_of(guard));
  if (world.rank() == 0) print_end(result, config, wall_seconds() - begin, log);
  return ExitCode::kOk;
}

}  // namespace

int run_train(const ConfigArgs& args) {
  require_one_kind_of_ranks(args);
  JobGuard guard(guard_limits(args, "training"));
  const auto mpi = launched_by_mpi() ? make_mpi_world() : nullptr;
  install_signal_handlers();      // again: MPI_Init may have installed its own
  std::atomic<bool> told{false};  // train_rank says what it throws
  try {
    return static_cast<int>(on_ranks(mpi.get(), std::max(1, args.ranks), [&](World& world) {
      Log log(world.rank(), false);
      const auto load = [&] {
        std::vector<std::string> warnings;
        RunConfig config = resolve(load_config(args.path, args.overrides, &warnings), world.size(),
                                   config_origin(args.path));
        require_outputs_apart(config, args.path, world.rank());
        if (world.rank() == 0)
          for (const std::string& line : warnings) log.warn("{}", line);
        return config;
      };
      return with_config(world, log, load, [&](const RunConfig& config) {
        try {
          return train_one(world, config, log, guard);
        } catch (...) {
          told = true;
          throw;
        }
      });
    }));
  } catch (const Error& error) {  // of several ranks' the first
    if (!told) throw;
    return static_cast<int>(error.code());
  }
}

}  // namespace tandem
