#include "tandem/plan/grid.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

// `count` ranks from `first`, `stride` apart.
std::vector<int> ranks_from(int first, int count, int stride) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace

RankGrid::Place RankGrid::place(int rank) const {
  TANDEM_CHECK(rank >= 0, "a rank is a number from 0");
  TANDEM_CHECK(rank < world(), "the grid is pp {} x dp {}", pp, dp);
  const int dp_index = rank % dp;
  return {.pp = rank / dp, .dp = dp_index, .ep = dp_index % ep, .edp = dp_index / ep};
}

std::vector<int> RankGrid::pp_group(int rank) const {
  return ranks_from(rank_at(0, place(rank).dp), pp, dp);
}

std::vector<int> RankGrid::dp_group(int rank) const {
  return ranks_from(rank_at(place(rank).pp, 0), dp, 1);
}

std::vector<int> RankGrid::ep_group(int rank) const {
  const Place at = place(rank);
  return ranks_from(rank_at(at.pp, at.edp * ep), ep, 1);
}

std::vector<int> RankGrid::edp_group(int rank) const {
  const Place at = place(rank);
  return ranks_from(rank_at(at.pp, at.ep), edp(), ep);
}

RankGrid make_grid(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pp < 1 || parallel.dp < 1 || parallel.ep < 1 || parallel.dp % parallel.ep != 0)
    throw_error(ExitCode::kUsage,
                "parallel: pp = {}, dp = {}, ep = {} is no rank grid; all are at least 1 and ep "
                "divides dp: change parallel.ep, or start pp x (a multiple of ep) ranks",
                parallel.pp, parallel.dp, parallel.ep);
  return {.pp = parallel.pp, .dp = parallel.dp, .ep = parallel.ep};
}

}  // namespace tandem
