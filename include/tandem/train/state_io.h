// Between the optimizer's device shards and checkpoint files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/base/log.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

// Saves this rank's optimizer shards. Collective, blocking. `stream` is idle.
void save_state(World& world, Device& device, Stream& stream, const Params& params,
                const Optimizer& optimizer, const RunConfig& config, const CheckpointInfo& info,
                const SaveHook& hook = {});

// Finds the newest complete checkpoint (rank 0 looks and verifies, the others are told), loads this
// rank's shards and publishes the parameters. nullopt: there is none. Collective, blocking. Throws
// Error(kBadInput) for another model, Error(kUsage) for another train.seed or train.global_batch.
std::optional<CheckpointInfo> load_state(World& world, Device& device, Stream& stream,
                                         const Params& params, Optimizer& optimizer,
                                         const RunConfig& config, Log& log);

}  // namespace tandem
