// Watchdog: a thread that ends the run when nothing moves for too long. It says which rank stands
// where, lane by lane, leaves the other ranks a second to say the same, then aborts the world; no
// rank waits for ever. In a process that was stopped for half the limit, and a second at
// least, it says so when the process runs again. It also asks the libraries under the communicators
// whether they have failed. Where nobody reads standard error it acts without a word.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/runtime/timeline.h"

namespace tandem {

class Watchdog {
 public:
  // Watches while the object lives. All arguments outlive it. Time in which the process is stopped
  // does not count.
  Watchdog(World& world, const Timeline& timeline, Log& log, int timeout_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What the rank is at, from here until it goes: where work takes long in which nothing of a step
  // moves. One at a time.
  class Phase {
   public:
    ~Phase() { watchdog_.enter(nullptr, 1); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    friend Watchdog;
    Phase(Watchdog& watchdog, const char* where, int patience) : watchdog_(watchdog) {
      watchdog_.enter(where, patience);
    }
    Watchdog& watchdog_;
  };
  // Nothing may move for four times as long; the message says `where`, as in "in a checkpoint".
  static constexpr int kPatience = 4;
  [[nodiscard]] Phase patient(const char* where) { return {*this, where, kPatience}; }
  // Work that neither waits for other ranks nor reads or writes: nothing is found amiss.
  [[nodiscard]] Phase own_work() { return {*this, nullptr, 0}; }

  // It has said where the lanes stand, as nothing moved.
  [[nodiscard]] bool has_reported();

 private:
  void enter(const char* where, int patience);
  void watch();
  using Lock = std::unique_lock<std::mutex>;
  bool sleep(Lock& lock);  // for a period; false: watching is over
  void report_termination();
  void end_standstill(Lock& lock, std::int64_t limit_s);
  bool healthy();  // false after it has aborted the world over a failed communicator

  World& world_;
  const Timeline& timeline_;
  Log& log_;
  const int timeout_s_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stop_ = false, has_reported_ = false;
  const char* where_ = nullptr;         // of a phase of patience
  int patience_ = 1;                    // times the timeout; 0: no end
  std::chrono::milliseconds still_{0};  // for so long nothing has moved
  // The thread, for the last time.
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace tandem
