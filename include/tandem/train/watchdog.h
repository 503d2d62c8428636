// Watchdog: a thread that ends the run when nothing moves for too long. It says which rank stands
// where, lane by lane, then aborts the world; no rank waits for ever. It also asks the libraries under
// the communicators whether they have failed.
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
  // Watches while the object lives. All arguments outlive it.
  Watchdog(World& world, const Timeline& timeline, Log& log, int timeout_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // While patient (a checkpoint is being written or read) nothing may move for four times as long.
  static constexpr int kPatience = 4;
  void be_patient(bool patient);

 private:
  void watch();
  void report_termination();
  bool healthy();  // false after it has aborted the world over a failed communicator

  World& world_;
  const Timeline& timeline_;
  Log& log_;
  const int timeout_s_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stop_ = false, patient_ = false;
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace tandem
