// Whether what a run will need is there, before it takes it. Private to the trainer.
#pragma once

#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"
#include "tandem/model/params.h"
#include "tandem/schedule/program.h"

namespace tandem {

// On the CPU device: throws a SharedError(kMemory) where the ranks of a host need more memory than
// it has free: its kernel would hand it out and later end some process. A GPU refuses by itself. An
// estimate, for a balanced router. Collective.
void require_memory(World& world, const Device& device, const RunConfig& config,
                    const ParamTable& table, const Program& program);

}  // namespace tandem
