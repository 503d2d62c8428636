// The rank grid: world = pp x dp, pp slowest. Expert-parallel groups are runs of ep neighbours in
// dp; expert-data-parallel groups are the ranks of one stage with the same place in their ep group.
//   rank = pp_index * dp + dp_index,  ep_index = dp_index % ep,  edp_index = dp_index / ep
#pragma once

#include <vector>

#include "tandem/config/config.h"

namespace tandem {

struct RankGrid {
  int pp = 1, dp = 1, ep = 1;

  struct Place { int pp, dp, ep, edp; };

  [[nodiscard]] int world() const { return pp * dp; }
  [[nodiscard]] int edp() const { return dp / ep; }
  [[nodiscard]] Place place(int rank) const;
  [[nodiscard]] int rank_at(int pp_index, int dp_index) const { return pp_index * dp + dp_index; }

  // Member ranks of the groups `rank` belongs to, in group order.
  [[nodiscard]] std::vector<int> pp_group(int rank) const;   // same dp_index
  [[nodiscard]] std::vector<int> dp_group(int rank) const;   // same stage
  [[nodiscard]] std::vector<int> ep_group(int rank) const;
  [[nodiscard]] std::vector<int> edp_group(int rank) const;
};

RankGrid make_grid(const RunConfig& config);  // config is resolved

}  // namespace tandem
