// Which device and which communicators a rank gets.
#pragma once

#include <memory>

#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"

namespace tandem {

// By train.device and the GPUs this rank sees; rank 0 logs what it got. Collective. Throws
// SharedError(kUsage) where the wanted device is not there, on one rank or more.
// host_memory_limit: bytes a CPU device hands out, 0 for no limit.
std::unique_ptr<Device> open_device(World& world, const TrainConfig& config, Log& log,
                                    std::size_t host_memory_limit = 0);

// By the devices of all ranks, which are compared here, train.comm and train.alltoall; the same on
// every rank. Collective. Throws Error(kUsage) where the devices do not go together or with
// train.comm. Rank 0 logs what GPUs get and why, and warns of keys without effect on this device.
CommOptions choose_comm(World& world, const RunConfig& config, const Device& device, Log& log);

}  // namespace tandem
