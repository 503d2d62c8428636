// Whether a run may continue from a checkpoint that was written under another config.
#pragma once

#include <string>

#include "tandem/ckpt/checkpoint.h"
#include "tandem/config/config.h"

namespace tandem {

// Compares the config in the checkpoint at `path` with this run's; keys the checkpoint does not
// know yet are passed over. Throws, each time listing the keys that differ as "key: old -> new",
// Error(kBadInput) where the model computes another function of the same weights or has others, and
// Error(kUsage) where the samples from here on would be others (train.seed, seq_len, global_batch).
// Returns the list of what else changes the numbers (objective, dtype, data, optimizer, a learning
// rate that train.steps bends), to be told; every line begins with a new one.
std::string require_same_run(const std::string& path, const CheckpointInfo& info,
                             const RunConfig& config);

}  // namespace tandem
