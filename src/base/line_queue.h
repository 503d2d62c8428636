// Lines on their way to an output that may be slow or stop: writing them is a thread's work, so
// that whoever says something goes on. Private to the log.
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
  ~LineQueue();  // waits for the rest as long as it moves; drops it where finish() gave up
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;

  // Any thread. Blocks only while thousands of lines are waiting already.
  void push(std::string line);
  // Until all lines are written; false if some are not within `limit`, however they move.
  bool drain(std::chrono::milliseconds limit);
  // Until all lines are written, however long that takes. From when in_a_hurry() says so it is
  // given a few seconds more; false if that was not enough.
  bool finish(const std::function<bool()>& in_a_hurry);

 private:
  bool drain_while_moving();
  struct State;  // shared with the thread
  std::shared_ptr<State> state_;
  bool gave_up_ = false;
  std::thread thread_;  // started by the first line
};

}  // namespace tandem
