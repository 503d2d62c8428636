// Waits for MPI requests without a core of its own.
//
// MPI makes progress only inside its calls, so somebody has to ask. A wait first asks by itself,
// with growing pauses; when it lasts longer it joins the process's shared list, where one of the
// waiting threads, the leader, asks for all. A rank whose lanes mostly wait so costs one sleepy
// thread, however many lanes it has. Any thread.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "../abort_state.h"

namespace tandem::mpi {

// The requests of one exchange. The owner keeps it alive until wait() returns or throws.
struct Batch {
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  int code = MPI_SUCCESS;  // of MPI_Testall

  bool test();  // true when all requests are complete, or one failed
};

class Poller {
 public:
  explicit Poller(const AbortState& abort) : abort_(abort) {}
  // Blocks until the batch is complete (its code says how); throws Aborted when the world is.
  void wait(Batch& batch);

 private:
  struct Waiter {
    Batch& batch;
    bool done = false;
    std::condition_variable changed;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool wait_alone(Batch& batch);
  void wait_together(Batch& batch);
  void lead(Lock& lock, const Waiter& own);
  void test_all();

  const AbortState& abort_;
  std::mutex mutex_;  // guards all below, and the batches of waiters_
  std::vector<Waiter*> waiters_;
  bool led_ = false;
};

}  // namespace tandem::mpi
