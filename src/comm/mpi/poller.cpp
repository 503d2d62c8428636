#include "poller.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tandem::mpi {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

// Alone: a few looks, a few yields, then sleeps of an eighth of the time waited so far.
constexpr int kLooks = 20;
constexpr int kYields = 20;
constexpr Microseconds kShortestSleep{2};
constexpr Microseconds kLongestAlone{400};
// Together: so rarely that all ranks of an oversubscribed machine may wait at once.
constexpr Microseconds kSharedSleep{200};

}  // namespace

bool Batch::test() {
  int complete = 0;
  statuses.resize(requests.size());
  // hazard: the library's reads and writes of the messages before the caller uses their memory
  code =
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, statuses.data());
  return complete != 0 || code != MPI_SUCCESS;
}

void Poller::wait(Batch& batch) {
  if (batch.requests.empty() || wait_alone(batch)) return;
  wait_together(batch);
}

bool Poller::wait_alone(Batch& batch) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < kLooks + kYields; ++i) {
    if (batch.test()) return true;
    if (i >= kLooks) std::this_thread::yield();
  }
  const Clock::time_point begin = Clock::now();
  for (;;) {
    abort_.check();
    const Microseconds waited = Clock::now() - begin;
    if (waited > kLongestAlone) return false;
    std::this_thread::sleep_for(std::max(kShortestSleep, waited / 8));
    if (batch.test()) return true;
  }
}

void Poller::wait_together(Batch& batch) {
  Waiter own{.batch = batch, .changed = {}};
  Lock lock(mutex_);
  waiters_.push_back(&own);
  while (!own.done && !abort_.is_set()) {
    if (!led_) {
      lead(lock, own);
    } else {
      // hazard: the leader's test of this batch before this thread reads what arrived
      own.changed.wait(lock, [&] { return own.done || !led_; });
    }
  }
  std::erase(waiters_, &own);
  // Somebody must lead; a waiter that is done or aborted passes this on when it leaves in turn.
  if (!led_ && !waiters_.empty()) waiters_.front()->changed.notify_one();
  if (!own.done) abort_.check();
}

void Poller::lead(Lock& lock, const Waiter& own) {
  led_ = true;
  for (;;) {
    test_all();
    if (own.done || abort_.is_set()) break;
    lock.unlock();
    std::this_thread::sleep_for(kSharedSleep);
    lock.lock();
  }
  led_ = false;
}

void Poller::test_all() {
  for (Waiter* waiter : waiters_) {
    if (waiter->done || !waiter->batch.test()) continue;
    waiter->done = true;
    waiter->changed.notify_one();
  }
}

}  // namespace tandem::mpi
