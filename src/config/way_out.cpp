#include "way_out.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

namespace tandem::config {
namespace {

// The pipeline stages worth trying, the best first.
std::vector<int> stages_for(int pp, int world) {
  std::vector<int> all;
  for (int stages = pp; stages >= 1; --stages)
    if (world == 0 ? stages == pp || stages == 1 : world % stages == 0) all.push_back(stages);
  return all;
}

std::vector<int> expert_ranks_for(int ep, int experts, int dp) {
  std::vector<int> all;
  for (int ranks = ep; ranks >= 1; --ranks)
    if ((experts == 0 ? ranks == 1 : experts % ranks == 0) && (dp == 0 || dp % ranks == 0))
      all.push_back(ranks);
  return all;
}

// A partition that does not fit goes.
void fit_layers(RunConfig& c) {
  ParallelConfig& p = c.parallel;
  const int stages = p.pp * p.vpp;
  const bool fits =
      p.partition.size() == static_cast<std::size_t>(stages) &&
      std::accumulate(p.partition.begin(), p.partition.end(), std::int64_t{0}) == c.model.layers;
  if (!fits) p.partition.clear();
  if (p.partition.empty() && c.model.layers % stages != 0) p.spread = LayerSpread::kSpread;
}

// The batch as it is where it holds, or else the next larger one, or else the next smaller one.
std::optional<RunConfig> with_batch(RunConfig c, int dp, int world, const LayoutHolds& holds) {
  const ParallelConfig& p = c.parallel;
  const std::int64_t sequences = std::int64_t{c.train.micro_batch} * dp;
  const std::int64_t asked = c.train.global_batch, group = p.microbatch_group;
  const std::int64_t longest = std::max<std::int64_t>(p.pp, group == 0 ? p.pp : group);
  const auto tried = [&](std::int64_t microbatches) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    if (microbatches < 1 || microbatches * sequences > kMost) return false;
    c.train.global_batch = static_cast<int>(microbatches * sequences);
    return holds(c, world);
  };
  // The last group is full, or has enough for all stages.
  const auto short_by = [&](std::int64_t microbatches) {
    const std::int64_t rest = p.vpp > 1 ? microbatches % longest : 0;
    return rest < p.pp ? rest : 0;
  };
  const std::int64_t enough = (asked + sequences - 1) / sequences;
  const std::int64_t above = p.vpp > 1 ? std::max(enough, longest) : enough;
  if (tried(short_by(above) == 0 ? above : above - short_by(above) + p.pp)) return c;
  const std::int64_t below =
      std::min(enough - 1, most_microbatches(c.model.layers, std::int64_t{p.pp} * p.vpp));
  if (tried(below - short_by(below))) return c;
  return std::nullopt;
}

std::optional<RunConfig> with_stages(RunConfig c, int world, const LayoutHolds& holds) {
  ParallelConfig& p = c.parallel;
  const ParallelConfig asked = p;
  for (const int vpp : asked.vpp > 1 && p.pp > 1 ? std::vector<int>{asked.vpp, 1} : std::vector{1})
    for (const int ep :
         expert_ranks_for(asked.ep, c.model.experts, world == 0 ? asked.dp : world / p.pp)) {
      RunConfig tried = c;
      tried.parallel.vpp = vpp;
      tried.parallel.ep = ep;
      if (world > 0 && asked.dp > 0) tried.parallel.dp = world / p.pp;
      fit_layers(tried);
      const bool starves = vpp > 1 && asked.microbatch_group < p.pp;
      if (starves) tried.parallel.microbatch_group = 0;
      const int own_dp = asked.dp > 0 ? asked.dp : ep;
      const int dp = world == 0 ? own_dp : world / p.pp;
      if (auto found = with_batch(tried, dp, world, holds)) return found;
    }
  return std::nullopt;
}

std::string difference(const RunConfig& from, const RunConfig& to) {
  std::string text;
  const auto tell = [&](const char* key, int before, int after) {
    if (before != after) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, after);
  };
  const ParallelConfig &a = from.parallel, &b = to.parallel;
  if (from.model.aux_loss != to.model.aux_loss) text = "model.aux_loss=per_layer";
  tell("parallel.pp", a.pp, b.pp);
  tell("parallel.vpp", a.vpp, b.vpp);
  tell("parallel.dp", a.dp, b.dp);
  tell("parallel.ep", a.ep, b.ep);
  tell("parallel.microbatch_group", a.microbatch_group, b.microbatch_group);
  if (a.partition != b.partition)
    text += (text.empty() ? "" : " ") + std::string("parallel.partition=[]");
  if (a.spread != b.spread)
    text += (text.empty() ? "" : " ") + std::string("parallel.spread=spread");
  tell("train.global_batch", from.train.global_batch, to.train.global_batch);
  return text;
}

std::optional<RunConfig> nearest_layout(const RunConfig& asked, int world,
                                        const LayoutHolds& holds) {
  for (const int pp : stages_for(asked.parallel.pp, world)) {
    RunConfig tried = asked;
    tried.parallel.pp = pp;
    if (auto found = with_stages(tried, world, holds)) return found;
  }
  return std::nullopt;
}

// So many ranks, near `world`, that nothing else must change.
int ranks_for(const RunConfig& asked, int world, const LayoutHolds& holds) {
  const ParallelConfig& p = asked.parallel;
  const std::int64_t unit = std::int64_t{p.pp} * (p.dp > 0 ? p.dp : p.ep);
  constexpr std::int64_t kMostRanks = 1 << 18, kTries = 64;
  const std::int64_t below = p.dp > 0 ? 1 : std::max<std::int64_t>(1, world / unit);
  const auto suffices = [&](std::int64_t times) {
    return times >= 1 && times * unit <= kMostRanks && times * unit != world &&
           holds(asked, static_cast<int>(times * unit));
  };
  for (std::int64_t times = below; times > below - kTries; --times)
    if (suffices(times)) return static_cast<int>(times * unit);
  if (p.dp > 0) return 0;
  for (std::int64_t times = below + 1; times < below + kTries; ++times)
    if (suffices(times)) return static_cast<int>(times * unit);
  return 0;
}

}  // namespace

std::int64_t most_microbatches(std::int64_t layers, std::int64_t chunks) {
  constexpr std::int64_t kMostWork = 1 << 19;
  return std::max<std::int64_t>(1, kMostWork / (layers + chunks));
}

std::string WayOut::start() const {
  return ranks == 0 ? "" : fmt::format("start {0} ranks (mpirun -np {0}, or --ranks {0})", ranks);
}

std::string WayOut::set() const {
  return settings.empty() ? "" : "set " + settings;
}

std::string either(const std::string& first, const std::string& second) {
  return first + (first.empty() || second.empty() ? "" : ", or ") + second;
}

WayOut find_way_out(const RunConfig& asked, int world, const LayoutHolds& holds) {
  WayOut way;
  if (world > 0) way.ranks = ranks_for(asked, world, holds);
  if (const auto found = nearest_layout(asked, world, holds))
    way.settings = difference(asked, *found);
  if (asked.model.aux_loss == AuxLossKind::kPooled) {
    RunConfig other = asked;
    other.model.aux_loss = AuxLossKind::kPerLayer;
    if (const auto found = nearest_layout(other, world, holds))
      way.per_layer = difference(asked, *found);
  }
  return way;
}

}  // namespace tandem::config
