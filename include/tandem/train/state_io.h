// Between the optimizer's device shards and checkpoint files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tandem/base/log.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/ckpt/claim.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

// Keeps other runs out of config.checkpoint.dir while the claim lives; rank 0 holds it, the others
// get nullptr, and so do all without a directory. Collective. Throws SharedError(kBadInput) where
// another run holds it.
std::unique_ptr<CheckpointClaim> claim_checkpoints(World& world, const RunConfig& config, Log& log);

// Tries what a save needs, so that a run which could not save ends before its first step instead of
// at its first save. Collective, blocking. Throws SharedError(kBadInput). Nothing without a
// directory.
void require_savable(World& world, const RunConfig& config);

// Saves this rank's optimizer shards. Collective, blocking. `stream` is idle. Where a value of any
// rank's is not finite, saves nothing and throws SharedError(kTraining) with the tensor, the rank
// and `newest`, the step of this run's newest checkpoint, which was finite.
void save_state(World& world, Device& device, Stream& stream, const Params& params,
                const Optimizer& optimizer, const RunConfig& config, const CheckpointInfo& info,
                std::optional<std::int64_t> newest = {}, const SaveHook& hook = {});

// Finds the newest complete checkpoint (rank 0 looks and verifies, the others are told), loads this
// rank's shards and publishes the parameters. nullopt: there is none. Collective, blocking. Throws
// SharedError(kBadInput) for another model and for values that are not finite, SharedError(kUsage)
// where the samples would be others (train.seed, seq_len, global_batch) and for weights that
// train.dtype does not hold; rank 0 warns of other changes (src/train/same_run.h).
std::optional<CheckpointInfo> load_state(World& world, Device& device, Stream& stream,
                                         const Params& params, Optimizer& optimizer,
                                         const RunConfig& config, Log& log);

}  // namespace tandem
