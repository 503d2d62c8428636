#include "tandem/train/host_share.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <optional>
#include <string>

#include "tandem/base/host_memory.h"
#include "tandem/base/host_name.h"
#include "tandem/comm/shared_error.h"

namespace tandem {
namespace {

using Cores = std::bitset<CPU_SETSIZE>;

// Those that a process, 0 for this one, may use; nullopt where there are more than a set holds, or
// no such process.
std::optional<Cores> allowed_cores(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(process, sizeof(set), &set) != 0) return std::nullopt;
  Cores cores;
  for (std::size_t core = 0; core < cores.size(); ++core) cores[core] = CPU_ISSET(core, &set);
  return cores;
}

// The cores of all ranks of this host together. A launcher binds ranks, not itself: it stands for
// what the job may use. Where a script lies between it and the rank, that is bound too and tells
// nothing; that ranks were bound shows where they differ.
int cores_of_job(const Cores& mine, bool ranks_differ, int machine) {
  if (!launched_by_mpi()) return static_cast<int>(mine.count());
  const Cores with_parent = mine | allowed_cores(::getppid()).value_or(mine);
  if (with_parent == mine && ranks_differ) return machine;
  return static_cast<int>(with_parent.count());
}

}  // namespace

CoreShare cores_of_rank(World& world) {
  const int machine = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  const auto mine = allowed_cores(0);
  const std::string host = host_name() + ' ';
  const std::string told = host + (mine ? mine->to_string() : "");
  bool differ = false;
  for (const std::string& other : world.gather(told))
    differ = differ || (other.starts_with(host) && other != told);
  if (!mine) return {machine, machine, std::max(1, machine / world.local_size())};
  const int job = std::min(machine, cores_of_job(*mine, differ, machine));
  return {machine, std::min(machine, static_cast<int>(mine->count())),
          std::max(1, job / world.local_size())};
}

double host_bytes_of_rank(World& world) {
  return together(world, [&] { return available_host_bytes() / world.local_size(); });
}

}  // namespace tandem
