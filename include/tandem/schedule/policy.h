// Policies: the order of chunk tasks on one stage. Pure functions, exactly Megatron-Core's tables
// (Narayanan et al. 2021; golden values in tests/golden), plus one more warm-up forward when
// forward and backward of different micro-batches are to be paired.
#pragma once

#include <vector>

#include "tandem/model/node.h"

namespace tandem {

struct Task {
  Dir dir = Dir::kFwd;
  int chunk = 0;
  int microbatch = 0;
  // True on a forward task that is paired with the backward task right behind it.
  bool paired = false;
  bool operator==(const Task&) const = default;
};

struct PipelineShape {
  int pp = 1, vpp = 1, microbatches = 1, group = 1;  // group: micro-batches per interleaving group
  bool overlap = false;
};

// Training order of `stage`. vpp = 1: 1F1B, with warm-up pp - stage - 1, or doubled to
// 2 (pp - stage - 1) + 1 with overlap (pp = 1: F0; (F1, B0) ...; last B). vpp > 1: interleaved 1F1B.
std::vector<Task> training_order(const PipelineShape& shape, int stage);

// Forward only, for evaluation.
std::vector<Task> evaluation_order(const PipelineShape& shape, int stage);

int warmup_tasks(const PipelineShape& shape, int stage);      // forwards before the first backward
int peak_live_chunks(const PipelineShape& shape, int stage);  // forward done, backward not

}  // namespace tandem
