#include <algorithm>
#include <atomic>
#include <memory>

#include "commands.h"
#include "json_report.h"
#include "output_file.h"
#include "ranks.h"
#include "tandem/base/atomic_file.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/bench/bench.h"
#include "tandem/comm/world.h"
#include "tandem/config/load.h"

namespace tandem {
namespace {

RunConfig bench_config(bench::Kind kind, const ConfigArgs& args, const World& world, Log& log) {
  std::vector<std::string> warnings;
  const int ranks = world.size();
  RunConfig config = load_config(args.path, args.overrides, &warnings);
  if (world.rank() == 0)
    for (const std::string& line : warnings) log.warn("{}", line);
  if (kind == bench::Kind::kAllToAll) {  // any number of ranks; the model's layout does not matter
    config.parallel = ParallelConfig{};
    config.parallel.dp = ranks;
    config.train.global_batch = ranks * config.train.micro_batch;
  }
  return resolve(std::move(config), bench::takes_ranks(kind) ? ranks : 0, config_origin(args.path));
}

// One rank with its config, start to end.
ExitCode bench_one(World& world, bench::Kind kind, const BenchArgs& args, const RunConfig& config,
                   Log& log, const TrainHooks& hooks) {
  bench::Report report;
  abort_on_error(world,
                 [&] { report = bench::run(world, kind, config, args.repeats, log, hooks); });
  if (world.rank() != 0) return ExitCode::kOk;
  if (!instead_of_tables(args.json)) log.info("\n{}", bench::to_table(report));
  if (!args.json.empty()) put_report(bench::to_json(report, args.command, config), args.json);
  return ExitCode::kOk;
}

}  // namespace

int run_bench(BenchArgs args) {
  const bench::Kind kind = bench::kind_from_name(args.name);
  take_override_without_file(args.config);
  require_other_file("--json", args.json, args.config.path);
  if (!args.json.empty() && !instead_of_tables(args.json)) require_writable(args.json);
  require_one_kind_of_ranks(args.config);
  JobGuard guard(guard_limits(args.config, "benchmarking"));
  const auto mpi = launched_by_mpi() ? make_mpi_world() : nullptr;
  const int ranks = mpi ? mpi->size() : std::max(1, args.config.ranks);
  if (ranks > 1 && !bench::takes_ranks(kind))
    throw_error(ExitCode::kUsage, "bench {} runs on one rank, not {}: slice and alltoall take more",
                bench::name_of(kind), ranks);
  std::atomic<bool> told{false};  // the trainer says what it throws
  TrainHooks hooks = hooks_of(guard);
  hooks.on_told = [&told] { told = true; };
  try {
    return static_cast<int>(on_ranks(mpi.get(), ranks, [&](World& world) {
      Log log(world.rank(), false);
      if (instead_of_tables(args.json)) log.notes_to_stderr();
      const auto load = [&] { return bench_config(kind, args.config, world, log); };
      return with_config(world, log, load, [&](const RunConfig& config) {
        return bench_one(world, kind, args, config, log, hooks);
      });
    }));
  } catch (const Error& error) {  // of several ranks' the first
    if (!told) throw;
    return static_cast<int>(error.code());
  }
}

}  // namespace tandem
