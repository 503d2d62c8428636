#include "tandem/train/device_choice.h"

#include <algorithm>
#include <thread>

#include "tandem/comm/shared_error.h"

namespace tandem {
namespace {

// One visible GPU is this rank's, whatever its local rank: launchers often show each rank just one.
// Where a host has more ranks than GPUs, they share.
std::unique_ptr<Device> open_cuda(World& world, const TrainConfig& config, int visible) {
  return make_cuda_device({.ordinal = visible == 1 ? 0 : world.local_rank() % visible,
                           .compute_sms = config.compute_sms,
                           .deterministic = config.deterministic});
}

}  // namespace

std::unique_ptr<Device> open_device(World& world, const TrainConfig& config, Log& log,
                                    std::size_t host_memory_limit) {
  const int cores = std::max(1U, std::thread::hardware_concurrency());
  const int visible = config.device == DeviceChoice::kCpu ? 0 : visible_cuda_devices();
  const bool cuda = config.device == DeviceChoice::kCuda || visible > 0;
  const int threads =
      config.cpu_threads > 0 ? config.cpu_threads : std::max(1, cores / world.local_size());
  auto device = together(world, [&] {
    return cuda ? open_cuda(world, config, std::max(1, visible))
                : make_cpu_device({.threads = threads, .memory_limit = host_memory_limit});
  });
  if (world.rank() == 0)
    log.note("device   {}, {} rank(s) on {} core(s)", device->description(), world.size(), cores);
  return device;
}

}  // namespace tandem
