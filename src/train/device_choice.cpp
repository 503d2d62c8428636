#include "tandem/train/device_choice.h"

#include <algorithm>
#include <string>

#include "tandem/base/units.h"
#include "tandem/comm/shared_error.h"
#include "tandem/train/host_share.h"

namespace tandem {
namespace {

// One visible GPU is this rank's, whatever its local rank: launchers often show each rank just one.
// Where a host has more ranks than GPUs, they share.
std::unique_ptr<Device> open_cuda(World& world, const TrainConfig& config, int visible) {
  return make_cuda_device({.ordinal = visible == 1 ? 0 : world.local_rank() % visible,
                           .compute_sms = config.compute_sms,
                           .deterministic = config.deterministic});
}

// "" where this rank has the cores that it should. threads: train.cpu_threads, 0 for its share.
std::string few_cores(const CoreShare& cores, int threads) {
  if (threads == 0 && cores.allowed < cores.fair)
    return fmt::format("may use {}, its share of the host is {}", counted(cores.allowed, "core"),
                       cores.fair);
  if (threads > cores.allowed && cores.allowed < cores.machine)
    return fmt::format("has {} and may use {}", counted(threads, "thread"),
                       counted(cores.allowed, "core"));
  return "";
}

// Collective.
void warn_of_few_cores(World& world, const CoreShare& cores, int threads, Log& log) {
  const std::string mine = few_cores(cores, threads);
  const std::string way_out = cores.allowed < cores.fair
                                  ? "start the ranks unbound (mpirun --bind-to none)"
                                  : fmt::format("set train.cpu_threads={}", cores.fair);
  const auto all = world.gather(mine.empty() ? "" : fmt::format("{}; {}", mine, way_out));
  const auto few = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(all.begin(), all.end(), few);
  if (first == all.end() || world.rank() != 0) return;
  log.warn("{} of {} will be slow for want of cores: rank {} {}",
           std::count_if(all.begin(), all.end(), few), counted(world.size(), "rank"),
           first - all.begin(), *first);
}

}  // namespace

std::unique_ptr<Device> open_device(World& world, const TrainConfig& config, Log& log,
                                    std::size_t host_memory_limit) {
  const int visible = config.device == DeviceChoice::kCpu ? 0 : visible_cuda_devices();
  const bool cuda = config.device == DeviceChoice::kCuda || visible > 0;
  const CoreShare cores = cores_of_rank(world);
  const int threads =
      config.cpu_threads > 0 ? config.cpu_threads : std::min(cores.fair, cores.allowed);
  auto device = together(world, [&] {
    return cuda ? open_cuda(world, config, std::max(1, visible))
                : make_cpu_device({.threads = threads, .memory_limit = host_memory_limit});
  });
  if (world.rank() == 0)
    log.note("device   {}, {} on {}{}", device->description(), counted(world.size(), "rank"),
             counted(cores.machine, "core"),
             cores.allowed < cores.machine
                 ? fmt::format(", of which rank 0 may use {}", cores.allowed)
                 : "");
  // Whether a rank has a GPU may differ, until choose_comm() has compared them.
  if (world.max(cuda ? 1.0 : 0.0) == 0.0) warn_of_few_cores(world, cores, config.cpu_threads, log);
  return device;
}

}  // namespace tandem
