#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "../transport_world.h"
#include "mpi_job.h"
#include "mpi_transport.h"
#include "tandem/base/stderr_is_read.h"

namespace tandem {
namespace mpi {
namespace {

// After abort(), how long the process may take to unwind by itself before it is ended from here.
constexpr std::chrono::seconds kGrace{5};

// Some containers forbid reading another process's memory, which Open MPI finds out only when the
// first large message fails. Asked beforehand, it uses shared memory instead.
void avoid_forbidden_shortcuts() {
  char from = 1;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1) return;
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", /*overwrite=*/0);
}

void init_library() {
  avoid_forbidden_shortcuts();
  int initialized = 0;
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  TANDEM_CHECK(initialized == 0, "one MPI world per process");
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw_error(
        ExitCode::kComm,
        "this MPI library offers thread level {} and Tandem needs MPI_THREAD_MULTIPLE ({}); "
        "use an MPI built with thread support, or --ranks N without mpirun",
        provided, MPI_THREAD_MULTIPLE);
  }
}

std::unique_ptr<MpiTransport> host_transport(const std::shared_ptr<Job>& job) {
  init_library();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(job, copy);
}

class MpiWorld : public TransportWorld {
 public:
  explicit MpiWorld(const std::shared_ptr<Job>& job)
      : TransportWorld(host_transport(job)), job_(job) {
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &host),
          "MPI_Comm_split_type");
    check(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
    check(MPI_Comm_free(&host), "MPI_Comm_free");
  }

  ~MpiWorld() override {
    stop_last_resort();
    if (job_->abort.is_set()) end_job();
    close_host();
    job_->finalized.store(true);
    MPI_Finalize();
  }

  [[nodiscard]] int local_rank() const override { return local_rank_; }
  [[nodiscard]] int local_size() const override { return local_size_; }

  void abort(ExitCode code, const std::string& reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!job_->abort.set(code, reason)) return;
    const std::string first_line = reason.substr(0, reason.find('\n'));  // all of it was logged
    if (stderr_is_read())
      std::fprintf(stderr, "[rank %d] aborting the job: %s\n", rank(), first_line.c_str());
    try {
      last_resort_ = std::thread([this] { wait_and_end_job(); });
    } catch (...) {
      end_job();
    }
  }

 protected:
  std::unique_ptr<Transport> make_transport(const std::vector<int>& members) override {
    // Groups of one call are disjoint, so their first member tells them apart.
    int place = 0;
    while (members[static_cast<std::size_t>(place)] != rank()) ++place;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_split(MPI_COMM_WORLD, members.front(), place, &comm), "MPI_Comm_split");
    auto transport = std::make_unique<MpiTransport>(job_, comm);
    TANDEM_CHECK(transport->size() == static_cast<int>(members.size()), "members of a group");
    TANDEM_CHECK(transport->rank() == place, "place in a group");
    return transport;
  }
  AbortState& abort_state() override { return job_->abort; }

 private:
  // Flushes nothing: the log's lines are out one by one, and its thread may hold the lock of a
  // standard output that nobody reads.
  void end_job() noexcept {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(job_->abort.code()));
    std::_Exit(static_cast<int>(job_->abort.code()));
  }

  void wait_and_end_job() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kGrace, [this] { return leaving_; })) return;
    if (stderr_is_read())
      std::fprintf(stderr, "[rank %d] did not end by itself after the abort\n", rank());
    end_job();
  }

  void stop_last_resort() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    if (last_resort_.joinable()) last_resort_.join();
  }

  std::shared_ptr<Job> job_;
  int local_rank_ = 0, local_size_ = 1;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;     // guarded by mutex_
  std::thread last_resort_;  // started by the first abort
};

}  // namespace
}  // namespace mpi

std::unique_ptr<World> make_mpi_world() {
  return std::make_unique<mpi::MpiWorld>(std::make_shared<mpi::Job>());
}

bool launched_by_mpi() {
  const auto has = [](const char* name) { return std::getenv(name) != nullptr; };
  return has("OMPI_COMM_WORLD_SIZE") || has("PMI_RANK") ||
         (has("SLURM_PROCID") && has("PMIX_RANK"));
}

std::optional<int> launcher_rank() {
  if (!launched_by_mpi()) return std::nullopt;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const char* end = value + std::strlen(value);
    int rank = 0;
    if (std::from_chars(value, end, rank) == std::from_chars_result{end, std::errc{}}) return rank;
  }
  return std::nullopt;
}

}  // namespace tandem
