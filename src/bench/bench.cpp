#include "tandem/bench/bench.h"

#include <array>

#include "benches.h"
#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/train/device_choice.h"
#include "tandem/train/hook_scope.h"
#include "tandem/train/host_share.h"
#include "world_benches.h"

namespace tandem::bench {
namespace {

using OneRank = Measured (*)(Device&, Stream&, const RunConfig&, int);

struct Entry {
  Kind kind;
  std::string_view name;
  OneRank one_rank;  // null: takes all ranks
};

constexpr std::array<Entry, 6> kEntries = {{{Kind::kGemm, "gemm", bench_gemm},
                                            {Kind::kGrouped, "grouped", bench_grouped},
                                            {Kind::kAttention, "attention", bench_attention},
                                            {Kind::kLayer, "layer", bench_layer},
                                            {Kind::kSlice, "slice", nullptr},
                                            {Kind::kAllToAll, "alltoall", nullptr}}};

const Entry& entry(Kind kind) {
  return kEntries[static_cast<std::size_t>(kind)];
}

// Only the limits, for benchmarks whose rows are no rounds of ops.
std::vector<Row> limits_of(Device& device, DType dtype, int repeats) {
  const auto stream = device.make_stream("bench", 0);
  return measure(device, *stream, dtype, repeats, {}).limits;
}

double flops_limit(const std::vector<Row>& limits) {
  for (const Row& row : limits)
    if (row.flops > 0) return row.flops / row.ms * 1e3;
  return 0;
}

}  // namespace

Kind kind_from_name(std::string_view name) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.kind;
    names.push_back(e.name);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", e.name);
  }
  const std::string_view near = nearest_name(name, names);
  throw_error(ExitCode::kUsage, "there is no benchmark \"{}\"{}; the benchmarks are {}", name,
              near.empty() ? "" : fmt::format(" (did you mean {}?)", near), list);
}

std::string_view name_of(Kind kind) {
  return entry(kind).name;
}

bool takes_ranks(Kind kind) {
  return entry(kind).one_rank == nullptr;
}

Report run(World& world, Kind kind, const RunConfig& config, int repeats, Log& log,
           const TrainHooks& hooks) {
  const bool fits = takes_ranks(kind) || world.size() == 1;
  TANDEM_CHECK(fits, "bench {} runs on one rank", name_of(kind));
  Report report;
  report.bench = name_of(kind);
  report.ranks = world.size();
  report.repeats = repeats;
  // What the kernel would hand out beyond the memory there is would end some process later.
  auto device =
      open_device(world, config.train, log, static_cast<std::size_t>(host_bytes_of_rank(world)));
  report.device = device->description();
  if (const OneRank bench = entry(kind).one_rank) {
    const HookScope work(hooks.on_own_work);
    const auto stream = device->make_stream("bench", 0);
    Measured measured = bench(*device, *stream, config, repeats);
    report.limits = std::move(measured.limits);
    report.rows = std::move(measured.rows);
    return report;
  }
  {
    const HookScope work(hooks.on_own_work);
    report.limits = limits_of(*device, config.train.dtype, repeats);
  }
  if (kind == Kind::kSlice) {
    device.reset();  // the trainer opens its own
    report.rows = slice_rows(world, config, repeats, flops_limit(report.limits), hooks);
  } else {
    AllToAllRows all = alltoall_rows(world, *device, config, repeats, log, hooks);
    report.transport = std::move(all.transport);
    report.rows = std::move(all.rows);
  }
  return report;
}

}  // namespace tandem::bench
