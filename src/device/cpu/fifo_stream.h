// CpuStream implementation: one worker thread and a FIFO of closures.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "clock.h"
#include "tandem/device/cpu_stream.h"

namespace tandem::cpu {

class FifoStream : public CpuStream {
 public:
  FifoStream(std::string name, Clock clock, Workers* workers);
  ~FifoStream() override;

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Workers& workers() override { return *workers_; }
  void record(Event& event) override;
  void wait(const Event& event) override;
  void call(std::function<void()> work) override;
  void sync() override;
  [[nodiscard]] std::size_t pending() const override;

 private:
  void enqueue(std::function<void()> item);
  void loop();

  const std::string name_;
  const Clock clock_;
  Workers* const workers_;
  mutable std::mutex mutex_;  // guards queue_ .. stop_
  std::condition_variable arrived_, emptied_;
  std::deque<std::function<void()>> queue_;
  std::size_t pending_ = 0;  // in queue_ or running
  bool stop_ = false;
  std::exception_ptr poison_;  // written by the worker; read by the host only when pending_ == 0
  std::thread worker_;         // last: it uses every member above
};

}  // namespace tandem::cpu
