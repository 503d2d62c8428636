#include "tandem/runtime/rank_comms.h"

namespace tandem {
namespace {

// The communicator of the edge from stage `from` to stage `to`, for every data-parallel index at
// once. Ranks that are not on it take part with a group of their own and keep nothing.
std::unique_ptr<Comm> make_edge(World& world, const RankGrid& grid, int from, int to,
                                const std::string& name, const CommOptions& options) {
  const auto place = grid.place(world.rank());
  const bool member = place.pp == from || place.pp == to;
  const std::vector<int> pair = {grid.rank_at(from, place.dp), grid.rank_at(to, place.dp)};
  if (member) return world.make_comm(pair, name, options);
  (void)world.make_comm({world.rank()}, name);
  return nullptr;
}

}  // namespace

RankComms make_rank_comms(World& world, const RankGrid& grid, bool tied_embeddings,
                          CommOptions options) {
  const int rank = world.rank();
  RankComms comms;
  comms.ep = world.make_comm(grid.ep_group(rank), "ep", options);
  options.path = AllToAllPath::kPlain;  // the others carry no all-to-all
  comms.dense = world.make_comm(grid.dp_group(rank), "dp", options);
  comms.expert = world.make_comm(grid.edp_group(rank), "expert dp", options);
  comms.stages = world.make_comm(grid.pp_group(rank), "stages", options);
  comms.experts = world.make_comm(grid.ep_group(rank), "experts", options);
  if (grid.pp == 1) return comms;

  if (tied_embeddings)
    comms.tied = make_edge(world, grid, 0, grid.pp - 1, "tied embeddings", options);
  const int stage = grid.place(rank).pp;
  for (int from = 0; from < grid.pp; ++from) {
    const int next = (from + 1) % grid.pp;
    auto fwd =
        make_edge(world, grid, from, next, fmt::format("forward {}-{}", from, next), options);
    auto bwd =
        make_edge(world, grid, next, from, fmt::format("backward {}-{}", next, from), options);
    if (stage == from) {
      comms.send_fwd = fwd.get();
      comms.recv_bwd = bwd.get();
    } else if (stage == next) {
      comms.recv_fwd = fwd.get();
      comms.send_bwd = bwd.get();
    }
    for (auto* edge : {&fwd, &bwd})
      if (*edge) comms.edges.push_back(std::move(*edge));
  }
  return comms;
}

}  // namespace tandem
