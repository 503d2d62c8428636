#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/plan/grid.h"
#include "tandem/plan/partition.h"

namespace tandem {
namespace {

using Ranks = std::vector<int>;

RunConfig parallel_config(int pp, int vpp, int dp, int ep, int layers) {
  RunConfig config;
  config.parallel.pp = pp;
  config.parallel.vpp = vpp;
  config.parallel.dp = dp;
  config.parallel.ep = ep;
  config.model.layers = layers;
  return config;
}

std::vector<int> counts_of(const Partition& partition) {
  std::vector<int> counts;
  for (const ChunkPlan& chunk : partition.stages) counts.push_back(chunk.layers());
  return counts;
}

// The message of the usage error that making the partition must end with.
std::string refusal(const RunConfig& config) {
  try {
    make_partition(config);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  FAIL("the partition was accepted");
  return {};
}

// All virtual stages tile [0, layers) in order; only the ends hold embedding and head.
void check_tiling(const Partition& partition, int layers) {
  REQUIRE(static_cast<int>(partition.stages.size()) == partition.pp * partition.vpp);
  int next = 0;
  for (std::size_t v = 0; v < partition.stages.size(); ++v) {
    const ChunkPlan& chunk = partition.stages[v];
    CHECK(chunk.virtual_stage == static_cast<int>(v));
    CHECK(chunk.layer_begin == next);
    CHECK(chunk.layers() >= 0);
    CHECK(chunk.has_embedding == (v == 0));
    CHECK(chunk.has_head == (v + 1 == partition.stages.size()));
    next = chunk.layer_end;
  }
  CHECK(next == layers);
}

}  // namespace

TEST_CASE("groups of a pp2 dp4 ep2 grid, in group order") {
  const RankGrid grid = make_grid(parallel_config(2, 1, 4, 2, 4));
  REQUIRE(grid.world() == 8);
  CHECK(grid.edp() == 2);
  const RankGrid::Place at = grid.place(7);
  CHECK(Ranks{at.pp, at.dp, at.ep, at.edp} == Ranks{1, 3, 1, 1});
  CHECK(grid.rank_at(at.pp, at.dp) == 7);

  CHECK(grid.pp_group(1) == Ranks{1, 5});
  CHECK(grid.pp_group(5) == Ranks{1, 5});
  CHECK(grid.dp_group(2) == Ranks{0, 1, 2, 3});
  CHECK(grid.dp_group(6) == Ranks{4, 5, 6, 7});
  CHECK(grid.ep_group(0) == Ranks{0, 1});
  CHECK(grid.ep_group(3) == Ranks{2, 3});
  CHECK(grid.ep_group(6) == Ranks{6, 7});
  CHECK(grid.edp_group(0) == Ranks{0, 2});
  CHECK(grid.edp_group(3) == Ranks{1, 3});
  CHECK(grid.edp_group(5) == Ranks{5, 7});
}

TEST_CASE("every rank is in exactly one group of each kind, at its own index") {
  for (const auto& [pp, dp, ep] : {std::tuple{1, 1, 1}, {2, 4, 2}, {3, 6, 3}, {4, 4, 4}}) {
    const RankGrid grid = make_grid(parallel_config(pp, 1, dp, ep, 12));
    for (int rank = 0; rank < grid.world(); ++rank) {
      CAPTURE(pp, dp, ep, rank);
      const RankGrid::Place at = grid.place(rank);
      const std::vector<std::pair<Ranks, int>> groups = {{grid.pp_group(rank), at.pp},
                                                         {grid.dp_group(rank), at.dp},
                                                         {grid.ep_group(rank), at.ep},
                                                         {grid.edp_group(rank), at.edp}};
      const std::vector<int> sizes = {pp, dp, ep, dp / ep};
      for (std::size_t kind = 0; kind < groups.size(); ++kind) {
        const auto& [group, index] = groups[kind];
        REQUIRE(static_cast<int>(group.size()) == sizes[kind]);
        CHECK(group[static_cast<std::size_t>(index)] == rank);
        CHECK(std::is_sorted(group.begin(), group.end()));
        for (const int peer : group) {  // peers see the same group, so groups cannot overlap
          const std::vector<Ranks> seen = {grid.pp_group(peer), grid.dp_group(peer),
                                           grid.ep_group(peer), grid.edp_group(peer)};
          CHECK(seen[kind] == group);
        }
      }
    }
  }
}

TEST_CASE("a rank outside the grid and an impossible grid are refused") {
  const RankGrid grid = make_grid(parallel_config(2, 1, 2, 1, 4));
  CHECK_THROWS_AS(grid.place(4), Error);
  CHECK_THROWS_AS(grid.place(-1), Error);
  CHECK_THROWS_WITH(make_grid(parallel_config(1, 1, 4, 3, 4)), Catch::Contains("ep divides dp"));
  CHECK_THROWS_AS(make_grid(parallel_config(1, 1, 0, 1, 4)), Error);
}

TEST_CASE("layers that divide are shared evenly, chunk by chunk") {
  const Partition partition = make_partition(parallel_config(2, 2, 1, 1, 8));
  check_tiling(partition, 8);
  CHECK(counts_of(partition) == std::vector<int>{2, 2, 2, 2});
  // Stage 1's second chunk is virtual stage 3.
  CHECK(partition.at(1, 1).virtual_stage == 3);
  CHECK(partition.at(1, 1).layer_begin == 6);
  CHECK(partition.at(1, 0).layer_begin == 2);
  CHECK(partition.at(0, 1).layer_begin == 4);
}

TEST_CASE("an explicit partition is taken as given, empty chunks included") {
  RunConfig config = parallel_config(2, 2, 1, 1, 7);
  config.parallel.partition = {0, 5, 2, 0};
  const Partition partition = make_partition(config);
  check_tiling(partition, 7);
  CHECK(counts_of(partition) == config.parallel.partition);
}

TEST_CASE("surplus layers are spread to the middle first, the head's stage last") {
  const std::map<std::pair<int, int>, std::vector<int>> expected = {
      {{15, 4}, {4, 4, 4, 3}},  {{13, 4}, {3, 4, 3, 3}}, {{14, 4}, {3, 4, 4, 3}},
      {{3, 4}, {1, 1, 1, 0}},   {{1, 4}, {0, 1, 0, 0}},  {{16, 4}, {4, 4, 4, 4}},
      {{7, 5}, {1, 2, 2, 1, 1}}};
  for (const auto& [layers_stages, counts] : expected) {
    const auto [layers, stages] = layers_stages;
    CAPTURE(layers, stages);
    RunConfig config = parallel_config(stages, 1, 1, 1, layers);
    config.parallel.spread = LayerSpread::kSpread;
    const Partition partition = make_partition(config);
    check_tiling(partition, layers);
    CHECK(counts_of(partition) == counts);
  }
}

TEST_CASE("a partition that cannot be is refused with the way out") {
  RunConfig config = parallel_config(2, 2, 1, 1, 15);
  const std::string uneven = refusal(config);
  CHECK_THAT(uneven, Catch::Contains("parallel.spread") && Catch::Contains("[4, 4, 4, 3]") &&
                         Catch::Contains("16"));

  config.parallel.partition = {5, 5, 5};
  CHECK_THAT(refusal(config), Catch::Contains("pp x vpp = 4"));
  config.parallel.partition = {5, 5, 5, 1};
  CHECK_THAT(refusal(config), Catch::Contains("16 layers") && Catch::Contains("15"));
  config.parallel.partition = {5, 5, 6, -1};
  CHECK_THAT(refusal(config), Catch::Contains("negative"));
  CHECK_THAT(refusal(parallel_config(0, 1, 1, 1, 4)), Catch::Contains("at least 1"));
}

}  // namespace tandem
