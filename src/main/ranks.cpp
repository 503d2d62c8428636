#include "ranks.h"

#include <chrono>

#include "tandem/comm/shared_error.h"
#include "tandem/config/load.h"
#include "tandem/train/signals.h"
#include "tandem/train/watchdog.h"

namespace tandem {

void require_one_kind_of_ranks(const ConfigArgs& args) {
  if (launched_by_mpi() && args.ranks > 0)
    throw_error(ExitCode::kUsage,
                "--ranks {} runs ranks as threads of one process: leave it out under mpirun",
                args.ranks);
}

JobGuard::Limits guard_limits(const ConfigArgs& args, const char* work) {
  constexpr std::chrono::seconds kLibraries{60};
  constexpr std::chrono::years kNever{1000};
  std::chrono::seconds step{TrainConfig{}.watchdog_s};
  try {
    step = std::chrono::seconds(load_config(args.path, args.overrides).train.watchdog_s);
  } catch (const Error&) {
  }
  return {.start = step + kLibraries,
          .end = launched_by_mpi() ? Watchdog::kPatience * step : kNever,
          .work = work};
}

TrainHooks hooks_of(JobGuard& guard) {
  TrainHooks hooks;
  hooks.on_watched = [&guard](bool begins) { guard.watched(begins); };
  hooks.on_own_work = [&guard](bool begins) { guard.own_work(begins); };
  return hooks;
}

ExitCode on_ranks(World* world, int threads, const std::function<ExitCode(World&)>& body) {
  if (world != nullptr) return body(*world);
  ExitCode code = ExitCode::kOk;
  run_as_threads(threads, [&](World& rank) {
    const ExitCode mine = body(rank);
    if (rank.rank() == 0) code = mine;
  });
  return code;
}

ExitCode with_config(World& world, Log& log, const std::function<RunConfig()>& load,
                     const std::function<ExitCode(const RunConfig&)>& body) {
  RunConfig config;
  try {
    config = together(world, load);
  } catch (const SharedError& error) {
    if (world.rank() == 0) log.error("{}", error.what());
    return error.code();
  }
  const ExitCode code = body(config);
  if (log.finish(terminate_requested)) return code;
  log.error("standard output was not read to its end in time: some of it is lost");
  return code == ExitCode::kOk ? ExitCode::kBadInput : code;
}

}  // namespace tandem
