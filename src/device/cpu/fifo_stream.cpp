#include "fifo_stream.h"

#include <utility>

#include "cpu_event.h"
#include "tandem/base/error.h"
#include "tandem/device/start_thread.h"
#include "tandem/device/thread_name.h"

namespace tandem::cpu {

FifoStream::FifoStream(std::string name, Clock clock, Workers* workers)
    : name_(std::move(name)),
      clock_(clock),
      workers_(workers),
      worker_(start_thread("stream " + name_,
                           "start fewer ranks here, or raise the limit of threads (ulimit -u)",
                           [this] { loop(); })) {}

FifoStream::~FifoStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_one();
  worker_.join();
}

void FifoStream::record(Event& event) {
  auto* cpu_event = dynamic_cast<CpuEvent*>(&event);
  TANDEM_CHECK(cpu_event != nullptr, "stream {} was given an event of another device", name_);
  enqueue([this, point = cpu_event->new_point()] { point->reach(clock_.now_us(), poison_); });
}

void FifoStream::wait(const Event& event) {
  const auto* cpu_event = dynamic_cast<const CpuEvent*>(&event);
  TANDEM_CHECK(cpu_event != nullptr, "stream {} was given an event of another device", name_);
  std::shared_ptr<Point> point = cpu_event->latest();
  if (point == nullptr) return;
  enqueue([this, point = std::move(point)] {
    // hazard: the caller of wait() names the accesses; this passes the order on
    const std::exception_ptr poison = point->wait();
    if (poison && !poison_) poison_ = poison;
  });
}

void FifoStream::call(std::function<void()> work) {
  enqueue([this, work = std::move(work)] {
    if (poison_) return;
    try {
      work();
    } catch (...) {
      poison_ = std::current_exception();
    }
  });
}

void FifoStream::sync() {
  TANDEM_CHECK(std::this_thread::get_id() != worker_.get_id(),
               "stream {} would wait for itself: sync() from its own work", name_);
  std::unique_lock lock(mutex_);
  // hazard: the worker's writes in all enqueued work before the host's reads after sync
  emptied_.wait(lock, [this] { return pending_ == 0; });
  if (poison_) std::rethrow_exception(poison_);
}

std::size_t FifoStream::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

void FifoStream::enqueue(std::function<void()> item) {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = pending_ == 0;
    queue_.push_back(std::move(item));
    ++pending_;
  }
  // A busy worker looks at the queue again before it sleeps.
  if (idle) arrived_.notify_one();
}

void FifoStream::loop() {
  name_this_thread(name_);
  std::unique_lock lock(mutex_);
  for (;;) {
    // hazard: the host's writes captured by an item before the worker's reads of them
    arrived_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    item();
    item = nullptr;  // what the item owns is released before it counts as finished
    lock.lock();
    if (--pending_ == 0) emptied_.notify_all();
  }
}

}  // namespace tandem::cpu
