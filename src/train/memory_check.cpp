#include "memory_check.h"

#include <string>

#include "tandem/base/host_memory.h"
#include "tandem/base/units.h"
#include "tandem/comm/shared_error.h"
#include "tandem/schedule/rank_memory.h"

namespace tandem {

void require_memory(World& world, const Device& device, const RunConfig& config,
                    const ParamTable& table, const Program& program) {
  std::string text;
  const MemoryPlan plan = rank_memory(table, program, config);
  const double wanted = static_cast<double>(plan.total()) * world.local_size();
  const double there = available_host_bytes();
  if (device.kind() == DeviceKind::kCpu && there > 0.0 && wanted > there)
    text = fmt::format(
        "about {:.1f} GiB are needed by the {} of this host (parameters {:.1f}, gradients "
        "{:.1f}, optimizer {:.1f}, activations {:.1f} GiB a rank) and {:.1f} GiB are free: use a "
        "smaller model or micro-batch, or more hosts; tandem plan shows the parts",
        wanted / kGib, counted(world.local_size(), "rank"), static_cast<double>(plan.params) / kGib,
        static_cast<double>(plan.grads) / kGib, static_cast<double>(plan.optimizer) / kGib,
        static_cast<double>(plan.saved + plan.transient) / kGib, there / kGib);
  share_error(world, ExitCode::kMemory, text);
}

}  // namespace tandem
