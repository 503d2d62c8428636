// Runs host work in the middle of a CUDA stream on a thread of its own.
//
// Neither a host function of the stream nor the enqueuing thread may wait for long: host functions
// of all streams share one thread, and the enqueuing thread has other lanes to feed. So the stream
// waits at a gate, a word in pinned memory that this thread counts up after each piece of work; no
// multiprocessor is taken meanwhile. An error is kept, the work behind it is skipped, and every
// gate still opens.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/device/cuda_stream.h"

namespace tandem {

class GateThread {
 public:
  // For the device that is current. Allocates pinned memory, which may wait for every lane.
  explicit GateThread(const std::string& name);
  ~GateThread();  // after finish(), or does it itself
  GateThread(const GateThread&) = delete;
  GateThread& operator=(const GateThread&) = delete;

  // `work` starts when the stream has done all that is enqueued now; what is enqueued later starts
  // when `work` has ended. Does not wait. An exception of work poisons the stream, and is thrown
  // by the next run().
  void run(Stream& stream, CUstream_st* handle, std::function<void()> work);
  void finish() noexcept;  // runs what is queued, then ends the thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
