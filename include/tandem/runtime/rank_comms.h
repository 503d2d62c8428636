// The communicators of one rank, each used from exactly one lane.
#pragma once

#include <memory>
#include <vector>

#include "tandem/comm/world.h"
#include "tandem/optim/optimizer.h"
#include "tandem/plan/grid.h"

namespace tandem {

struct RankComms {
  std::unique_ptr<Comm> ep;                                    // lane ep
  std::unique_ptr<Comm> dense, expert, stages, experts, tied;  // lane dp
  // One two-member communicator per pipeline edge and direction; the sender is member 0.
  Comm *send_fwd = nullptr, *recv_fwd = nullptr, *send_bwd = nullptr, *recv_bwd = nullptr;
  std::vector<std::unique_ptr<Comm>> edges;  // their owners, in the order all ranks made them

  RankComms() = default;
  RankComms(RankComms&&) = default;
  RankComms& operator=(RankComms&&) = default;
  // Ending a communicator may wait for its other member: edges end in one order on all ranks.
  ~RankComms() {
    for (auto& edge : edges) edge.reset();
  }

  [[nodiscard]] OptimizerComms optimizer() const {
    return {dense.get(), expert.get(), stages.get(), experts.get(), tied.get()};
  }
};

// Collective over the world; every rank makes the same calls in the same order.
RankComms make_rank_comms(World& world, const RankGrid& grid, bool tied_embeddings,
                          CommOptions options = {});

}  // namespace tandem
