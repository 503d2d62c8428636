// JobGuard: a thread that ends the process where no watchdog watches yet, or any more. There
// nothing else could: MPI_Init and MPI_Finalize wait for ever for a rank that is stopped or never
// came.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tandem {

class JobGuard {
 public:
  struct Limits {
    std::chrono::seconds start, end;  // before and after the time in which a watchdog watches
    const char* work = "training";    // what begins and ends there
  };
  // After a limit: a message, if anybody reads standard error, and exit code 5, unless the job ends
  // within a second after all. Time in which the process is stopped does not count.
  explicit JobGuard(Limits limits);
  ~JobGuard();  // the job has ended
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;

  // The watchdog of a rank of this process begins, or ceases, to watch. Any thread, as the next.
  void watched(bool begins);
  // A rank of this process begins, or ends, work that waits for no other: it does not count.
  void own_work(bool begins);

 private:
  void watch(Limits limits);

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool ended_ = false;
  bool has_trained_ = false;            // a watchdog has watched
  int watched_ = 0, at_own_work_ = 0;   // ranks
  std::chrono::milliseconds spent_{0};  // of the limit that is running
  std::thread thread_;                  // last: starts when everything above exists
};

}  // namespace tandem
