#include "tandem/train/job_guard.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/stderr_is_read.h"
#include "tandem/comm/world.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPeriod{100};
// The first rank that ends its process ends the job: until then others say that they wait too.
constexpr std::chrono::seconds kLastWords{1};

std::string reason(bool has_trained, std::chrono::seconds limit, const char* work) {
  if (has_trained)
    return fmt::format(
        "the job has not ended {} s after its {}: another rank is stopped or hangs, or the reader "
        "of the output; if ending or reading just takes long, raise train.watchdog_s",
        limit.count(), work);
  return fmt::format(
      "{} has not begun after {} s, not counting the building of programs: another rank is "
      "stopped, was never started, or runs another program; if starting just takes long, raise "
      "train.watchdog_s",
      work, limit.count());
}

}  // namespace

JobGuard::JobGuard(Limits limits) : thread_([this, limits] { watch(limits); }) {}

JobGuard::~JobGuard() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void JobGuard::watched(bool begins) {
  const std::lock_guard lock(mutex_);
  watched_ += begins ? 1 : -1;
  has_trained_ = true;
  spent_ = milliseconds{0};
}

void JobGuard::own_work(bool begins) {
  const std::lock_guard lock(mutex_);
  at_own_work_ += begins ? 1 : -1;
}

// Nothing can be unwound: the thread that starts or ends the job hangs in a library.
void JobGuard::watch(Limits limits) {
  std::unique_lock lock(mutex_);
  const auto limit = [&] { return has_trained_ ? limits.end : limits.start; };
  while (spent_ < limit()) {
    if (wake_.wait_for(lock, kPeriod, [this] { return ended_; })) return;
    if (watched_ == 0 && at_own_work_ == 0) spent_ += kPeriod;
  }
  const std::optional<int> rank = launcher_rank();
  if (stderr_is_read())
    std::fprintf(stderr, "%serror: %s\n", rank ? fmt::format("[rank {}] ", *rank).c_str() : "",
                 reason(has_trained_, limit(), limits.work).c_str());
  if (wake_.wait_for(lock, kLastWords, [this] { return ended_; })) return;
  std::_Exit(static_cast<int>(ExitCode::kComm));
}

}  // namespace tandem
