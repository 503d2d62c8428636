#include "tandem/schedule/policy.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

int total_tasks(const PipelineShape& shape) {
  return shape.microbatches * shape.vpp;
}

void require_valid(const PipelineShape& shape, int stage) {
  TANDEM_CHECK(shape.pp >= 1, "pipeline stages");
  TANDEM_CHECK(shape.vpp >= 1, "chunks per stage");
  TANDEM_CHECK(shape.microbatches >= 1, "micro-batches per step");
  TANDEM_CHECK(shape.group >= 1, "micro-batches per interleaving group");
  TANDEM_CHECK(stage >= 0, "stage number");
  TANDEM_CHECK(stage < shape.pp, "stage number");
}

// Micro-batches in groups (the last may be short); inside a group chunk by chunk; inside a chunk
// the micro-batches of the group. Backward walks the chunks from the last to the first.
std::vector<Task> one_direction(const PipelineShape& shape, Dir dir) {
  std::vector<Task> tasks;
  tasks.reserve(static_cast<std::size_t>(total_tasks(shape)));
  for (int first = 0; first < shape.microbatches; first += shape.group) {
    const int end = std::min(first + shape.group, shape.microbatches);
    for (int c = 0; c < shape.vpp; ++c)
      for (int m = first; m < end; ++m)
        tasks.push_back({dir, dir == Dir::kFwd ? c : shape.vpp - 1 - c, m, false});
  }
  return tasks;
}

}  // namespace

int warmup_tasks(const PipelineShape& shape, int stage) {
  require_valid(shape, stage);
  const int behind = shape.pp - stage - 1;  // stages between this one and the last
  // A paired step hands over its results only at its end, so neighbours must be two tasks apart.
  const bool two_apart = shape.vpp > 1 || shape.overlap;
  const int warmup =
      (two_apart ? 2 * behind : behind) + (shape.vpp - 1) * shape.group + (shape.overlap ? 1 : 0);
  return std::min(warmup, total_tasks(shape));
}

int peak_live_chunks(const PipelineShape& shape, int stage) {
  return std::min(warmup_tasks(shape, stage) + 1, total_tasks(shape));
}

std::vector<Task> training_order(const PipelineShape& shape, int stage) {
  const int total = total_tasks(shape), warmup = warmup_tasks(shape, stage);
  const std::vector<Task> fwd = one_direction(shape, Dir::kFwd);
  const std::vector<Task> bwd = one_direction(shape, Dir::kBwd);
  std::vector<Task> order(fwd.begin(), fwd.begin() + warmup);
  order.reserve(static_cast<std::size_t>(2 * total));
  for (int k = 0; k < total; ++k) {
    if (k + warmup < total) {
      order.push_back(fwd[static_cast<std::size_t>(k + warmup)]);
      order.back().paired = shape.overlap;
    }
    order.push_back(bwd[static_cast<std::size_t>(k)]);
  }
  return order;
}

std::vector<Task> evaluation_order(const PipelineShape& shape, int stage) {
  require_valid(shape, stage);
  return one_direction(shape, Dir::kFwd);
}

}  // namespace tandem
