#include "line_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace tandem {
namespace {

constexpr std::size_t kMostWaiting = 65536;
constexpr std::chrono::milliseconds kPatienceAtEnd{5000}, kPeriod{100};

}  // namespace

struct LineQueue::State {
  explicit State(Write w) : write(std::move(w)) {}

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !lines.empty(); });
      if (lines.empty()) return;
      const std::string line = std::move(lines.front());
      lines.pop_front();
      writing = true;
      lock.unlock();
      write(line);
      lock.lock();
      writing = false;
      ++written;
      changed.notify_all();
    }
  }

  [[nodiscard]] bool done() const { return lines.empty() && !writing; }

  const Write write;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::size_t written = 0;  // of all lines so far
  bool writing = false, stop = false;
};

LineQueue::LineQueue(Write write) : state_(std::make_shared<State>(std::move(write))) {}

LineQueue::~LineQueue() {
  const bool finished = !gave_up_ && drain_while_moving();
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->lines.clear();
  }
  state_->changed.notify_all();
  if (!thread_.joinable()) return;
  if (finished)
    thread_.join();
  else
    thread_.detach();  // in a write that may never end; the process is about to
}

void LineQueue::push(std::string line) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->lines.size() < kMostWaiting; });
  state_->lines.push_back(std::move(line));
  if (!thread_.joinable()) thread_ = std::thread([state = state_] { state->run(); });
  state_->changed.notify_all();
}

bool LineQueue::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [this] { return state_->done(); });
}

bool LineQueue::drain_while_moving() {
  std::unique_lock lock(state_->mutex);
  while (!state_->done()) {
    const std::size_t before = state_->written;
    if (!state_->changed.wait_for(lock, kPatienceAtEnd, [&] { return state_->written != before; }))
      return false;
  }
  return true;
}

bool LineQueue::finish(const std::function<bool()>& in_a_hurry) {
  std::unique_lock lock(state_->mutex);
  std::chrono::milliseconds hurried{0};
  while (!state_->changed.wait_for(lock, kPeriod, [this] { return state_->done(); })) {
    if (!in_a_hurry()) continue;
    hurried += kPeriod;
    gave_up_ = hurried >= kPatienceAtEnd;
    if (gave_up_) return false;
  }
  return true;
}

}  // namespace tandem
