// The distributed optimizer: gradients of a bucket are summed over the ranks that share it and each
// member updates its slice of fp32 master, m and v with AdamW, then the slices are gathered.
// All work is enqueued on the dp lane; only apply() returns a value the host reads after a sync.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/comm/comm.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"
#include "tandem/nn/params.h"

namespace tandem {

struct OptimizerComms {
  Comm* dense = nullptr;      // dp group of this stage
  Comm* expert = nullptr;     // edp group
  Comm* stages = nullptr;     // pp group of this dp index (gradient norm over stages)
  Comm* experts = nullptr;    // ep group (gradient norm over expert shards), on the dp lane
  Comm* tied = nullptr;       // first and last stage of this dp index; nullptr unless tied and pp > 1
};

// The state one rank owns of one bucket: slice [begin, begin + count) of the flat buffer.
struct OptimizerShard {
  std::size_t bucket;
  std::int64_t begin, count;
  View master, m, v;          // f32 [count], device
};

class Optimizer {
 public:
  Optimizer(Device& device, Stream& stream, Params& params, const OptimizerConfig& config,
            bool tied_embeddings, const OptimizerComms& comms);
  ~Optimizer();

  // GRAD_SYNC of one chunk: tied gradients first summed over their two copies (by sync_tied),
  // then reduce-scatter of the chunk's buckets into gradient slices. Enqueued on `stream`.
  void sync_grads(Stream& stream, int chunk);

  // OPT_STEP: squares of all slices summed over every rank, each parameter counted once; clip
  // coefficient min(1, clip / (norm + 1e-6)); AdamW on the slices; all-gather of the parameters.
  // Enqueued on `stream`. `step` counts from 1.
  void apply(Stream& stream, double lr, std::int64_t step);

  [[nodiscard]] View grad_norm() const;                     // f32 [1], device: norm before clipping
  [[nodiscard]] const std::vector<OptimizerShard>& shards() const;
  // After loading master values: rounds them into this rank's parameter slices and gathers.
  void publish(Stream& stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
