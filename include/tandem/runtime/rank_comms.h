// The communicators of one rank, each used from exactly one lane.
#pragma once

#include <memory>

#include "tandem/comm/world.h"
#include "tandem/optim/optimizer.h"
#include "tandem/plan/grid.h"

namespace tandem {

struct RankComms {
  std::unique_ptr<Comm> ep;                                    // lane ep
  std::unique_ptr<Comm> dense, expert, stages, experts, tied;  // lane dp
  // One two-member communicator per pipeline edge and direction; the sender is member 0.
  std::unique_ptr<Comm> send_fwd, recv_fwd, send_bwd, recv_bwd;

  [[nodiscard]] OptimizerComms optimizer() const {
    return {dense.get(), expert.get(), stages.get(), experts.get(), tied.get()};
  }
};

// Collective over the world; every rank makes the same calls in the same order.
RankComms make_rank_comms(World& world, const RankGrid& grid, bool tied_embeddings,
                          const CommOptions& options = {});

}  // namespace tandem
