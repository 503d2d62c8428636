#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/build_config.h"
#include "tandem/base/error.h"
#include "tandem/comm/shared_error.h"
#include "tandem/config/load.h"
#include "tandem/model/slot.h"
#include "tandem/train/device_choice.h"

namespace tandem {
namespace {

struct Choice {
  CommKind kind;
  std::string why;
};

// The most ranks that have one GPU among them, and which GPU.
struct Crowd {
  int ranks = 0;
  std::string gpu;
};

Crowd largest_crowd(const std::vector<std::string>& gpus) {
  std::map<std::string, int> ranks_of;
  Crowd largest;
  for (const std::string& gpu : gpus)
    if (const int ranks = ++ranks_of[gpu]; ranks > largest.ranks) largest = {ranks, gpu};
  return largest;
}

// Ranks of one process share its CUDA context, in which an allocation or a library call of one rank
// may wait for the lanes of all, and so for ever for a lane that waits for this rank.
void refuse_threads(World& world, const Device& device, const Crowd& crowd) {
  const auto processes = world.gather(fmt::format("{} {}", device.unique_id(), getpid()));
  const std::set<std::string> different(processes.begin(), processes.end());
  if (different.size() < processes.size())
    throw_shared(ExitCode::kUsage,
                 "{} ranks are threads of one process and share {}: start them with mpirun -np {} "
                 "instead of --ranks, or set train.device=cpu",
                 crowd.ranks, crowd.gpu, processes.size());
}

Choice choose(CommChoice wanted, const Crowd& crowd) {
  if (wanted == CommChoice::kStaged) return {CommKind::kStaged, "as train.comm asks"};
  if (crowd.ranks > 1) {
    if (wanted == CommChoice::kNccl)
      throw_shared(ExitCode::kUsage,
                   "train.comm=nccl needs a GPU per rank, but {} ranks share {}: start fewer ranks "
                   "there, show each its own GPU (CUDA_VISIBLE_DEVICES), or set train.comm=staged",
                   crowd.ranks, crowd.gpu);
    return {CommKind::kStaged, fmt::format("{} ranks share GPU {}", crowd.ranks, crowd.gpu)};
  }
  if (wanted == CommChoice::kNccl || kHasNccl) return {CommKind::kNccl, "a GPU per rank"};
  return {CommKind::kStaged, "this build has no NCCL"};
}

// "cuda node7 0000:1B:00.0" of every rank; all of one kind.
std::vector<std::string> gather_devices(World& world, const Device& device) {
  const std::string kind = device.kind() == DeviceKind::kCuda ? "cuda " : "cpu ";
  std::vector<std::string> all = world.gather(kind + device.unique_id());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].substr(0, 4) == all[0].substr(0, 4)) continue;
    throw_shared(
        ExitCode::kUsage,
        "rank {} would run on {} and rank 0 on {}: set train.device to cpu or cuda for all", rank,
        all[rank], all[0]);
  }
  return all;
}

AllToAllPath path_of(AllToAllChoice choice) {
  // Packing rows into windows costs more than the windows save: docs/PERFORMANCE.md.
  return choice == AllToAllChoice::kWindow ? AllToAllPath::kWindow : AllToAllPath::kPlain;
}

// Rows and their weights that a pair exchanges when the router spreads tokens evenly, and half as
// much again: most messages then take one round.
std::size_t box_bytes(const ModelDims& dims) {
  const auto rows = static_cast<std::size_t>(dims.routed() / dims.ep + 1);
  const std::size_t row =
      static_cast<std::size_t>(dims.hidden) * size_of(dims.dtype) + sizeof(float);
  return rows * row * 3 / 2;
}

void tell_idle_keys(const RunConfig& config, bool on_gpu, Log& log) {
  if (log.rank() != 0) return;
  for (const std::string& line : idle_keys(config, on_gpu)) log.warn("{}", line);
}

}  // namespace

CommOptions choose_comm(World& world, const RunConfig& run, const Device& device, Log& log) {
  const TrainConfig& config = run.train;
  const std::vector<std::string> devices = gather_devices(world, device);
  if (device.kind() == DeviceKind::kCpu) {
    tell_idle_keys(run, false, log);
    return {};
  }
  const Crowd crowd = largest_crowd(devices);
  refuse_threads(world, device, crowd);
  const Choice choice = choose(config.comm, crowd);
  RunConfig chosen = run;
  chosen.train.comm = choice.kind == CommKind::kNccl ? CommChoice::kNccl : CommChoice::kStaged;
  tell_idle_keys(chosen, true, log);
  CommOptions options{.kind = choice.kind, .max_ctas = config.nccl_max_ctas};
  std::string carried;
  if (choice.kind == CommKind::kNccl && run.parallel.ep > 1) {
    options.path = path_of(config.alltoall);
    options.box_bytes = box_bytes(make_dims(run));
    carried = fmt::format("; all-to-all: {}", name_of(options.path));
  }
  if (world.rank() == 0)
    log.note("comm     {}: {}{}",
             choice.kind == CommKind::kNccl ? "NCCL" : "copies through host memory", choice.why,
             carried);
  return options;
}

}  // namespace tandem
