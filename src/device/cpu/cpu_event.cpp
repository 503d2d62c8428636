#include "cpu_event.h"

#include <utility>

namespace tandem::cpu {

void Point::reach(double now_us, std::exception_ptr poison) {
  {
    const std::lock_guard lock(mutex_);
    reached_us_ = now_us;
    poison_ = std::move(poison);
  }
  changed_.notify_all();
}

std::exception_ptr Point::wait() {
  std::unique_lock lock(mutex_);
  // hazard: the recording stream's work before this point, and the waiter's work after it
  changed_.wait(lock, [this] { return reached_us_ >= 0; });
  return poison_;
}

double Point::reached_us() const {
  const std::lock_guard lock(mutex_);
  return reached_us_;
}

bool CpuEvent::reached() const {
  const std::shared_ptr<Point> point = latest();
  return point == nullptr || point->reached_us() >= 0;
}

double CpuEvent::reached_us() const {
  const std::shared_ptr<Point> point = latest();
  return point == nullptr ? -1 : point->reached_us();
}

std::shared_ptr<Point> CpuEvent::new_point() {
  auto point = std::make_shared<Point>();
  const std::lock_guard lock(mutex_);
  latest_ = point;
  return point;
}

std::shared_ptr<Point> CpuEvent::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

}  // namespace tandem::cpu
