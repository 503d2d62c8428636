// Which communicators a run gets.
#pragma once

#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"

namespace tandem {

// By the devices of all ranks, which are compared here, and train.comm; the same on every rank.
// Collective. Throws Error(kUsage) where the devices do not go together or with train.comm. Rank 0
// logs what GPUs get and why.
CommOptions choose_comm(World& world, const TrainConfig& config, const Device& device, Log& log);

}  // namespace tandem
