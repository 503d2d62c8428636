#include "tandem/plan/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Counts = std::vector<int>;  // layers per virtual stage

Counts checked_explicit(const Counts& given, int stages, int layers) {
  const std::string list = fmt::format("[{}]", fmt::join(given, ", "));
  if (static_cast<int>(given.size()) != stages)
    throw_error(ExitCode::kUsage,
                "parallel.partition = {} has {} entries; give one for each of the pp x vpp = {} "
                "virtual stages",
                list, given.size(), stages);
  if (std::any_of(given.begin(), given.end(), [](int n) { return n < 0; }))
    throw_error(ExitCode::kUsage, "parallel.partition = {} has a negative entry; give 0 or more",
                list);
  const auto sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  if (sum != layers)
    throw_error(ExitCode::kUsage,
                "parallel.partition = {} holds {} layers; make it sum to model.layers = {}", list,
                sum, layers);
  return given;
}

// Virtual stages from the middle outwards. Of two at the same distance the earlier comes first:
// the head costs more than the embedding, so the last virtual stage is filled last.
std::vector<int> middle_first(int stages) {
  std::vector<int> order(static_cast<std::size_t>(stages));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [stages](int a, int b) {
    return std::abs(2 * a - (stages - 1)) < std::abs(2 * b - (stages - 1));
  });
  return order;
}

Counts spread_counts(int stages, int layers) {
  Counts counts(static_cast<std::size_t>(stages), layers / stages);
  const std::vector<int> order = middle_first(stages);
  for (int i = 0; i < layers % stages; ++i)
    ++counts[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
  return counts;
}

Counts layer_counts(const RunConfig& config, int stages) {
  const ParallelConfig& parallel = config.parallel;
  const int layers = config.model.layers;
  if (!parallel.partition.empty()) return checked_explicit(parallel.partition, stages, layers);
  if (layers % stages != 0 && parallel.spread == LayerSpread::kExact)
    throw_error(
        ExitCode::kUsage,
        "model.layers = {} does not divide into pp x vpp = {} x {} = {} virtual stages; set "
        "parallel.spread = \"spread\" (gives [{}]), list parallel.partition, or use {} "
        "layers",
        layers, parallel.pp, parallel.vpp, stages, fmt::join(spread_counts(stages, layers), ", "),
        (layers / stages + 1) * stages);
  return spread_counts(stages, layers);
}

}  // namespace

Partition make_partition(const RunConfig& config) {
  const int pp = config.parallel.pp, vpp = config.parallel.vpp;
  if (pp < 1 || vpp < 1 || config.model.layers < 1)
    throw_error(ExitCode::kUsage,
                "parallel.pp = {}, parallel.vpp = {} and model.layers = {} must be at least 1", pp,
                vpp, config.model.layers);
  Partition partition{.pp = pp, .vpp = vpp, .stages = {}};
  const int stages = pp * vpp;
  int begin = 0, stage = 0;
  for (const int count : layer_counts(config, stages)) {
    partition.stages.push_back({.virtual_stage = stage,
                                .layer_begin = begin,
                                .layer_end = begin + count,
                                .has_embedding = stage == 0,
                                .has_head = stage == stages - 1});
    begin += count;
    ++stage;
  }
  return partition;
}

}  // namespace tandem
