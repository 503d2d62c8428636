#include "tandem/train/device_choice.h"

#include <sched.h>

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

// Those that this rank may use of the machine's: mpirun without --bind-to none often gives it one.
int allowed_cores(int cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where there are more cores than a set holds.
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  return std::min(cores, CPU_COUNT(&set));
}

// Collective. threads: 0 on a GPU.
void warn_of_few_cores(World& world, int threads, int allowed, int cores, Log& log) {
  const bool few = allowed < cores && allowed < threads;
  const auto ranks = static_cast<int>(world.sum(few ? 1.0 : 0.0));
  if (ranks == 0 || world.rank() != 0) return;
  log.warn(
      "{} of {} rank(s) may use fewer cores than they have threads (rank 0: {} thread(s) on {} of "
      "{} core(s)) and will be slow: start with mpirun --bind-to none, or give a smaller "
      "train.cpu_threads",
      ranks, world.size(), threads, allowed, cores);
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
  const int allowed = allowed_cores(cores);
  if (world.rank() == 0)
    log.note("device   {}, {} rank(s) on {} core(s){}", device->description(), world.size(), cores,
             allowed < cores ? fmt::format(", of which rank 0 may use {}", allowed) : "");
  warn_of_few_cores(world, cuda ? 0 : threads, allowed, cores, log);
  return device;
}

}  // namespace tandem
