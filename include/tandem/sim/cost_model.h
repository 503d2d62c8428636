// Node times from closed-form FLOPs and bytes.
#pragma once

#include "tandem/config/config.h"
#include "tandem/sim/simulate.h"

namespace tandem {

struct MachineModel {
  double tflops = 500.0;     // sustained, per rank
  double gb_per_s = 50.0;    // GB/s of a rank to others
  double latency_us = 20.0;  // per node or message
};

CostModel cost_model(const RunConfig& config, const MachineModel& machine);

}  // namespace tandem
