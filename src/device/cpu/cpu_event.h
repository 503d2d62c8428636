// The CPU event: a handle to the point of its latest record.
//
// Every record makes a new Point, and whoever waits holds the Point that was latest when wait was
// called. So a later record of the same event, on any stream, never moves an earlier wait.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

#include "tandem/device/device.h"

namespace tandem::cpu {

// One place in one stream. Reached once, by the stream's worker; any thread may wait.
class Point {
 public:
  void reach(double now_us, std::exception_ptr poison);
  std::exception_ptr wait();                // blocks; returns the poison of the stream, or null
  [[nodiscard]] double reached_us() const;  // -1 before it is reached

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  double reached_us_ = -1;
  std::exception_ptr poison_;
};

class CpuEvent : public Event {
 public:
  [[nodiscard]] bool reached() const override;
  [[nodiscard]] double reached_us() const override;
  std::shared_ptr<Point> new_point();
  [[nodiscard]] std::shared_ptr<Point> latest() const;  // null when never recorded

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Point> latest_;
};

}  // namespace tandem::cpu
