#include "tandem/train/start_guard.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPeriod = std::chrono::milliseconds(100);

}  // namespace

StartGuard::StartGuard(int limit_s) : thread_([this, limit_s] { watch(limit_s); }) {}

StartGuard::~StartGuard() {
  dismiss();
  thread_.join();
}

void StartGuard::dismiss() {
  {
    const std::lock_guard lock(mutex_);
    dismissed_ = true;
  }
  wake_.notify_all();
}

void StartGuard::own_work(bool begins) {
  const std::lock_guard lock(mutex_);
  at_own_work_ += begins ? 1 : -1;
}

// Nothing can be unwound: the thread that starts the job hangs in a library.
void StartGuard::watch(int limit_s) {
  const auto limit = std::chrono::seconds(limit_s);
  auto spent = Clock::duration::zero();
  auto before = Clock::now();
  std::unique_lock lock(mutex_);
  while (spent < limit) {
    if (wake_.wait_for(lock, kPeriod, [this] { return dismissed_; })) return;
    const auto now = Clock::now();
    if (at_own_work_ == 0) spent += now - before;
    before = now;
  }
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::fprintf(stderr,
               "[rank %s] error: training has not begun after %d s, not counting the building of "
               "programs: another rank is stopped, was never started, or runs another program; if "
               "starting just takes long, raise train.watchdog_s\n",
               rank == nullptr ? "0" : rank, limit_s);
  std::fflush(stderr);
  std::_Exit(static_cast<int>(ExitCode::kComm));
}

}  // namespace tandem
