#include "tandem/device/workers.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/device/start_thread.h"
#include "tandem/device/thread_name.h"

namespace tandem {
namespace {

// Enough pieces to balance a few cores, few enough that a piece stays worth its function call.
constexpr std::int64_t kMaxPieces = 32;
// Ops of one stream follow each other within microseconds; sleeping in between would cost more than
// this many looks (some ten microseconds). Yielding lets whoever has work take the core meanwhile.
constexpr int kLooks = 40;

// One parallel_for in progress. Lives on its caller's stack.
struct Job {
  const std::function<void(std::int64_t, std::int64_t)>* body;
  std::int64_t count;
  std::int64_t pieces;
  std::atomic<std::int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
  std::int64_t error_piece = kMaxPieces;

  void run_piece(std::int64_t piece) {
    try {
      (*body)(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (piece < error_piece) {
        error_piece = piece;
        error = std::current_exception();
      }
    }
  }

  void run_pieces() {
    for (std::int64_t p = next.fetch_add(1); p < pieces; p = next.fetch_add(1)) run_piece(p);
  }
};

}  // namespace

struct Workers::State {
  int threads = 1;
  std::atomic<bool> busy{false};  // a caller owns the pool
  std::mutex mutex;
  std::condition_variable work, idle;
  Job* job = nullptr;                    // guarded by mutex
  int helpers = 0;                       // pool threads inside *job; guarded by mutex
  bool stop = false;                     // guarded by mutex
  std::atomic<std::uint64_t> posted{0};  // hint for spinning threads; `job` decides
  std::atomic<int> helpers_hint{0};
  std::vector<std::thread> pool;  // last: its threads use every member above

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {  // also of a pool that could not be completed
    {
      const std::lock_guard lock(mutex);
      stop = true;
      posted.fetch_add(1);
    }
    work.notify_all();
    for (std::thread& thread : pool) thread.join();
  }

  void serve() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kLooks && posted.load(std::memory_order_relaxed) == seen; ++i) {
        std::this_thread::yield();
      }
      Job* mine = nullptr;
      {
        std::unique_lock lock(mutex);
        // hazard: the caller's write of *job before this thread's reads of it
        work.wait(lock, [&] { return stop || (job != nullptr && posted.load() != seen); });
        if (stop) return;
        seen = posted.load();
        mine = job;
        ++helpers;
        helpers_hint.store(helpers);
      }
      mine->run_pieces();
      {
        const std::lock_guard lock(mutex);
        --helpers;
        helpers_hint.store(helpers);
        if (helpers == 0) idle.notify_one();
      }
    }
  }

  void run(Job& mine) {
    {
      const std::lock_guard lock(mutex);
      job = &mine;
      posted.fetch_add(1);
    }
    work.notify_all();
    mine.run_pieces();
    {
      const std::lock_guard lock(mutex);
      job = nullptr;  // a helper that wakes up late finds nothing to join
    }
    for (int i = 0; i < kLooks && helpers_hint.load(std::memory_order_relaxed) != 0; ++i) {
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex);
    // hazard: the helpers' writes of their pieces before the caller's reads of the result
    idle.wait(lock, [&] { return helpers == 0; });
  }
};

Workers::Workers(int threads) : state_(std::make_unique<State>()) {
  TANDEM_CHECK(threads >= 1, "workers need at least one thread");
  state_->threads = threads;
  for (int i = 1; i < threads; ++i) {
    state_->pool.push_back(
        start_thread(fmt::format("compute thread {} of {}", i + 1, threads),
                     "give a smaller train.cpu_threads, or raise the limit of threads (ulimit -u)",
                     [state = state_.get(), i] {
                       name_this_thread("worker-" + std::to_string(i));
                       state->serve();
                     }));
  }
}

Workers::~Workers() = default;

int Workers::threads() const {
  return state_->threads;
}

void Workers::parallel_for(std::int64_t count, std::int64_t grain,
                           const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const std::int64_t pieces =
      std::clamp(count / std::max<std::int64_t>(grain, 1), std::int64_t{1}, kMaxPieces);
  Job job{.body = &body, .count = count, .pieces = pieces, .error_mutex = {}, .error = {}};
  const bool shared = pieces > 1 && state_->threads > 1 && !state_->busy.exchange(true);
  if (shared) {
    state_->run(job);
    state_->busy.store(false);
  } else {
    job.run_pieces();
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tandem
