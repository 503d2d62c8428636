// World: all ranks of a job, as MPI processes or as threads of one process. Creates communicators
// and offers the few blocking host-side calls that start-up and step boundaries need. Nothing here
// has static storage.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/comm.h"

namespace tandem {

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int local_rank() const = 0;  // among the ranks of this host
  [[nodiscard]] virtual int local_size() const = 0;

  // Collective over all ranks of the world, in the same order everywhere. `members` differ by rank;
  // each rank passes the group it belongs to (at least itself). Blocking. Communicators of GPU
  // memory belong to the device that is current in the calling thread. Throws Error(kUsage) for a
  // kind this build does not have.
  virtual std::unique_ptr<Comm> make_comm(const std::vector<int>& members, const std::string& name,
                                          const CommOptions& options = {}) = 0;

  // Blocking, collective, host memory. Sum and max are taken in rank order.
  virtual void barrier() = 0;
  virtual double sum(double value) = 0;
  virtual double max(double value) = 0;
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;  // by rank, on every rank

  // Throws Error(kComm) once the library under a communicator of this process has failed by
  // itself, where no call of ours would notice. Any thread; does not wait.
  virtual void check_health() = 0;

  // Makes every wait inside communicators of this world throw Error(kComm) with this reason, soon.
  // Any thread. The other ranks learn of it as fast as the backend allows.
  virtual void abort(ExitCode code, const std::string& reason) noexcept = 0;
};

// Runs body; when it throws, aborts the world with the exception's code and text, then rethrows. A
// SharedError aborts nothing.
// Put it inside the scope of the streams whose lanes communicate: streams drain when they go, and
// only an abort ends their waits for other ranks.
void abort_on_error(World& world, const std::function<void()>& body);

// MPI_Init_thread with MPI_THREAD_MULTIPLE, verified. Finalises in the destructor; after an abort
// it calls MPI_Abort(code) instead. Waits poll with growing pauses instead of spinning.
std::unique_ptr<World> make_mpi_world();

// True when the process was started by mpirun or srun (environment only, no MPI call).
bool launched_by_mpi();
// The rank they gave it, if they say so: for messages outside of MPI_Init to MPI_Finalize.
std::optional<int> launcher_rank();

// Runs body(world) on `ranks` threads of this process; returns when all have ended. The first
// exception of the lowest failing rank is rethrown, after the others were aborted.
void run_as_threads(int ranks, const std::function<void(World&)>& body);

}  // namespace tandem
