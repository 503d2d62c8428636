// Lines on their way to an output that may be slow or stop: writing them is a thread's work, so that
// whoever says something goes on. Private to the log.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace tandem {

class LineQueue {
 public:
  // May block; must not throw; may outlive the queue if it blocks for ever.
  using Write = std::function<void(const std::string&)>;
  explicit LineQueue(Write write);
  ~LineQueue();  // waits for the rest as long as it moves
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;

  // Any thread. Blocks only while thousands of lines are waiting already.
  void push(std::string line);
  // Until all lines are written; false if none was for `patience`.
  bool drain(std::chrono::milliseconds patience);

 private:
  struct State;  // shared with the thread
  std::shared_ptr<State> state_;
  std::thread thread_;  // started by the first line
};

}  // namespace tandem
