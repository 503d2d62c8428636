// The distributed optimizer: gradients of a bucket are summed over the ranks that share it and each
// member updates its slice of fp32 master, m and v with AdamW, then the slices are gathered.
//
// Gradient contract: every gradient is scaled so that the plain sum over the sharing ranks is the
// gradient of the global loss. Expert gradients already hold the contributions of all ep peers.
// Order per step: [sync_tied] -> sync_grads of every chunk -> apply. All work is enqueued on the
// stream given, normally the dp lane; nothing blocks. All reductions have a fixed order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/comm/comm.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"
#include "tandem/nn/params.h"

namespace tandem {

// A group of one rank may be nullptr.
struct OptimizerComms {
  Comm* dense = nullptr;    // dp group of this stage
  Comm* expert = nullptr;   // edp group
  Comm* stages = nullptr;   // pp group of this dp index (gradient norm over stages)
  Comm* experts = nullptr;  // ep group (gradient norm over expert shards), on the dp lane
  Comm* tied = nullptr;     // first and last stage of this dp index; nullptr unless tied and pp > 1
};

// The state one rank owns of one bucket: slice [begin, begin + count) of the flat buffer.
struct OptimizerShard {
  std::size_t bucket;
  std::int64_t begin, count;
  View master, m, v;  // f32 [count], device
};

class Optimizer {
 public:
  // Allocates the state; master starts from the parameters, m and v from zero. Blocking.
  Optimizer(Device& device, Stream& stream, Params& params, const OptimizerConfig& config,
            bool tied_embeddings, const OptimizerComms& comms);
  ~Optimizer();

  // Sums the gradients of the two copies of a tied embedding into both. Call it once a step on
  // every rank, after the last gradient of either copy was enqueued before `stream` and before the
  // sync_grads of a chunk that holds one. Ranks that hold neither, and untied models, do nothing.
  void sync_tied(Stream& stream);

  // GRAD_SYNC of one chunk: reduce-scatter of its buckets into gradient slices.
  void sync_grads(Stream& stream, int chunk);

  // OPT_STEP: squares of all slices summed over every rank, each parameter counted once; clip
  // coefficient min(1, clip / (norm + 1e-6)), 1 where clip is 0; AdamW on the slices; all-gather of
  // the parameters. `step` counts from 1. Gradients are left as they are. They are `grad_factor`, a
  // power of two, times too large. Where the norm is not finite nothing changes.
  void apply(Stream& stream, double lr, std::int64_t step, float grad_factor = 1.0F);

  // f32 [1], device: norm before clipping, without the factor. The same bits on every rank. Read it after a sync.
  [[nodiscard]] View grad_norm() const;
  [[nodiscard]] const std::vector<OptimizerShard>& shards() const;
  // After loading master values: rounds them into this rank's parameter slices and gathers.
  void publish(Stream& stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
