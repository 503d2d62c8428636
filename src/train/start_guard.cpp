#include "tandem/train/start_guard.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem {

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

// Nothing can be unwound: the thread that starts the job hangs in a library.
void StartGuard::watch(int limit_s) {
  std::unique_lock lock(mutex_);
  if (wake_.wait_for(lock, std::chrono::seconds(limit_s), [this] { return dismissed_; })) return;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::fprintf(stderr,
               "[rank %s] error: training has not begun after %d s: another rank is stopped, was "
               "never started, or runs another program; if starting just takes long, raise "
               "train.watchdog_s\n",
               rank == nullptr ? "0" : rank, limit_s);
  std::fflush(stderr);
  std::_Exit(static_cast<int>(ExitCode::kComm));
}

}  // namespace tandem
