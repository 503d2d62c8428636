#include <algorithm>
#include <fstream>
#include <memory>

#include "commands.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/bench/bench.h"
#include "tandem/comm/world.h"
#include "tandem/config/load.h"

namespace tandem {
namespace {

RunConfig bench_config(bench::Kind kind, const ConfigArgs& args, int ranks) {
  RunConfig config = load_config(args.path, args.overrides);
  if (kind == bench::Kind::kAllToAll) {  // any number of ranks; the model's layout does not matter
    config.parallel = ParallelConfig{};
    config.parallel.dp = ranks;
    config.train.global_batch = ranks * config.train.micro_batch;
  }
  return resolve(std::move(config), bench::takes_ranks(kind) ? ranks : 0,
                 config_origin(args.path));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush())
    throw_error(ExitCode::kBadInput, "{} cannot be written: check the folder and the space", path);
}

// One rank, start to end. Config errors are the same on every rank: rank 0 speaks for all.
ExitCode bench_one(World& world, bench::Kind kind, const BenchArgs& args) {
  Log log(world.rank(), false);
  RunConfig config;
  try {
    config = bench_config(kind, args.config, world.size());
  } catch (const Error& error) {
    if (world.rank() == 0) log.error("{}", error.what());
    return error.code();
  }
  bench::Report report;
  abort_on_error(world, [&] { report = bench::run(world, kind, config, args.repeats, log); });
  if (world.rank() != 0) return ExitCode::kOk;
  log.info("\n{}", bench::to_table(report));
  if (!args.json.empty()) write_file(args.json, bench::to_json(report, args.command, config));
  return ExitCode::kOk;
}

ExitCode bench_as_threads(int ranks, bench::Kind kind, const BenchArgs& args) {
  ExitCode code = ExitCode::kOk;
  run_as_threads(ranks, [&](World& world) {
    const ExitCode mine = bench_one(world, kind, args);
    if (world.rank() == 0) code = mine;
  });
  return code;
}

}  // namespace

int run_bench(BenchArgs args) {
  const bench::Kind kind = bench::kind_from_name(args.name);
  if (args.config.path.find('=') != std::string::npos) {  // an override without a file before it
    args.config.overrides.insert(args.config.overrides.begin(), args.config.path);
    args.config.path.clear();
  }
  const auto world = launched_by_mpi() ? make_mpi_world() : nullptr;
  if (world && args.config.ranks > 0)
    throw_error(ExitCode::kUsage,
                "--ranks {} runs ranks as threads of one process: leave it out under mpirun",
                args.config.ranks);
  const int ranks = world ? world->size() : std::max(1, args.config.ranks);
  if (ranks > 1 && !bench::takes_ranks(kind))
    throw_error(ExitCode::kUsage, "bench {} runs on one rank, not {}: slice and alltoall take more",
                bench::name_of(kind), ranks);
  return static_cast<int>(world ? bench_one(*world, kind, args)
                                : bench_as_threads(ranks, kind, args));
}

}  // namespace tandem
