#include "tandem/train/watchdog.h"

#include <algorithm>
#include <chrono>

#include "tandem/base/stderr_is_read.h"
#include "tandem/train/signals.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
// The limit is a number of them, as a clock would go on while the whole job is stopped.
constexpr std::chrono::milliseconds kPeriod{100};
// A run that was told to stop and does so at the end of its step needs no report. Below the second
// that mpirun leaves the other ranks when one was killed.
constexpr int kPeriodsOfGrace = 4;
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

Watchdog::Watchdog(World& world, const Timeline& timeline, Log& log, int timeout_s)
    : world_(world), timeline_(timeline), log_(log), timeout_s_(timeout_s), thread_([this] {
        watch();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::enter(const char* where, int patience) {
  const std::lock_guard lock(mutex_);
  where_ = where;
  patience_ = patience;
  still_ = std::chrono::milliseconds{0};
}

void Watchdog::report_termination() {
  if (!stderr_is_read()) return;
  log_.warn("rank {} was told to terminate; its lanes stand at\n{}", world_.rank(),
            timeline_.where());
}

// A failed library may leave kernels that never end, and a host that waits for them.
bool Watchdog::healthy() {
  try {
    world_.check_health();
    return true;
  } catch (const Error& error) {
    if (stderr_is_read()) log_.error("{}", error.what());
    world_.abort(error.code(), error.what());
    return false;
  }
}

bool Watchdog::has_reported() {
  const Lock lock(mutex_);
  return has_reported_;
}

// A process that was stopped tells for how long, as others may have ended the job over it: it is
// the one to look at. Its own lanes had no chance to move meanwhile.
bool Watchdog::sleep(Lock& lock) {
  if (wake_.wait_for(lock, kPeriod, [this] { return stop_; })) return false;
  const std::chrono::duration<double> slept = Clock::now() - looked_;
  if (slept.count() < std::max(1.0, 0.5 * timeout_s_)) return true;
  if (stderr_is_read())
    log_.warn("rank {} was stopped for {:.1f} s: nothing of its process ran", world_.rank(),
              slept.count());
  still_ = std::chrono::milliseconds{0};
  return true;
}

// All ranks that wait for the same one reach their limits within a step of each other. The first
// that aborts may end the processes of all.
void Watchdog::end_standstill(Lock& lock, std::int64_t limit_s) {
  const std::string what =
      fmt::format("rank {} has not moved for {} s ({}train.watchdog_s)", world_.rank(), limit_s,
                  where_ == nullptr ? "" : fmt::format("{}, {} x ", where_, patience_));
  if (stderr_is_read()) log_.error("{}; its lanes stand at\n{}", what, timeline_.where());
  has_reported_ = true;
  if (!wake_.wait_for(lock, kLastWords, [this] { return stop_; }))
    world_.abort(ExitCode::kComm, what);
}

void Watchdog::watch() {
  std::int64_t last_progress = -1;
  bool termination_reported = false;
  int periods_told = 0;
  Lock lock(mutex_);
  while (sleep(lock)) {
    if (terminate_requested() && !termination_reported && ++periods_told > kPeriodsOfGrace) {
      termination_reported = true;
      report_termination();
    }
    if (!healthy()) return;
    const std::int64_t progress = timeline_.progress();
    const std::int64_t limit_s = std::int64_t{patience_} * timeout_s_;
    if (progress != last_progress || patience_ == 0) {
      last_progress = progress;
      still_ = std::chrono::milliseconds{0};
    } else if ((still_ += kPeriod) > std::chrono::seconds(limit_s)) {
      return end_standstill(lock, limit_s);
    }
    looked_ = Clock::now();
  }
}

}  // namespace tandem
