#include <algorithm>

#include "fields.h"
#include "problems.h"
#include "rules.h"
#include "tandem/base/error.h"
#include "tandem/base/units.h"
#include "tandem/config/load.h"
#include "values.h"

namespace tandem {
namespace {

// The ranks the config itself names.
int own_world(const ParallelConfig& p) {
  return p.pp * (p.dp != 0 ? p.dp : p.ep);
}

// The number of ranks gives the dp that the config leaves open.
bool dp_known(const ParallelConfig& p, int world) {
  return p.dp != 0 || world % p.pp == 0;
}

// dp and microbatch_group where the config leaves them open. A dp that cannot be known is one that
// suits the experts, so that the rules that do not depend on it can be checked.
RunConfig fill(RunConfig config, int world) {
  ParallelConfig& p = config.parallel;
  if (p.dp == 0) p.dp = dp_known(p, world) ? world / p.pp : p.ep;
  if (p.microbatch_group == 0) p.microbatch_group = p.pp;
  return config;
}

std::vector<std::string> range_violations(RunConfig config) {
  std::vector<std::string> all;
  for (const config::Field& field : config::fields(config))
    if (std::string violation = range_violation(field); !violation.empty())
      all.push_back(std::move(violation));
  return all;
}

void check_world(const RunConfig& config, const ParallelConfig& asked, int world,
                 const config::WayOut& way, config::Violations& out) {
  const ParallelConfig& p = config.parallel;
  const std::string ways = config::either(way.start(), way.set());
  const std::string way_out = ways.empty() ? "choose others" : ways;
  const std::string ranks = counted(world, "rank");
  if (world % p.pp != 0)
    out.add("parallel.pp", p.pp, fmt::format("does not divide the {} of this run", ranks), way_out);
  else if (asked.dp != 0 && std::int64_t{p.pp} * p.dp != world)
    out.add("parallel.dp", p.dp,
            fmt::format("pp x dp = {} x {} is not the {} of this run", p.pp, p.dp, ranks), way_out);
}

// Where a dp comes from that the config leaves open.
std::string origin_of_dp(const ParallelConfig& asked, int world) {
  return asked.dp != 0
             ? ""
             : fmt::format(" ({} over parallel.pp = {})", counted(world, "rank"), asked.pp);
}

// The rules of how ranks, layers and batches divide.
void check_divisions(const RunConfig& config, int ranks, const config::WayOut& way,
                     config::Violations& out) {
  const RunConfig filled = fill(config, ranks);
  check_world(filled, config.parallel, ranks, way, out);
  config::check_layout(filled, way, out);
  if (dp_known(config.parallel, ranks))
    config::check_batch(filled, origin_of_dp(config.parallel, ranks), way, out);
}

bool divisions_hold(const RunConfig& config, int world) {
  if (!range_violations(config).empty()) return false;
  config::Violations out;
  check_divisions(config, world == 0 ? own_world(config.parallel) : world, {}, out);
  return out.empty();
}

// What holds all rules of divisions; where evaluations are too long for every layout, the others.
config::WayOut way_out(RunConfig config, int world) {
  if (divisions_hold(config, world)) return {};
  const config::WayOut way = config::find_way_out(config, world, divisions_hold);
  if (way.ranks != 0 || !way.settings.empty() || !way.per_layer.empty()) return way;
  config.train.eval_batches = 1;
  return config::find_way_out(config, world, divisions_hold);
}

}  // namespace

namespace config {

void throw_if_any(const std::vector<std::string>& problems, const std::string& origin) {
  if (problems.empty()) return;
  constexpr std::size_t kShown = 50;
  std::string text =
      fmt::format("{}: {} problem{}", origin, problems.size(), problems.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(kShown, problems.size()); ++i)
    text += "\n  - " + problems[i];
  if (problems.size() > kShown) text += fmt::format("\n  and {} more", problems.size() - kShown);
  throw Error(ExitCode::kUsage, text);
}

}  // namespace config

std::vector<std::string> violations(const RunConfig& config, int world) {
  // The rules divide and multiply; they hold only for values inside their ranges.
  if (std::vector<std::string> out_of_range = range_violations(config); !out_of_range.empty())
    return out_of_range;
  const int ranks = world == 0 ? own_world(config.parallel) : world;
  const RunConfig filled = fill(config, ranks);
  config::Violations out;
  check_divisions(config, ranks, way_out(config, world), out);
  config::check_model(filled, out);
  config::check_sizes(filled, out);
  config::check_training(filled, out);
  config::check_files(filled, out);
  return out.take();
}

RunConfig resolve(RunConfig config, int world, const std::string& origin) {
  TANDEM_CHECK(world >= 0, "number of ranks");
  config::throw_if_any(violations(config, world), origin);
  return fill(config, world == 0 ? own_world(config.parallel) : world);
}

}  // namespace tandem
