// The thread of one staged communicator: runs host work in the middle of a CUDA stream.
//
// Neither a host function of the stream nor the enqueuing thread may wait for other ranks: host
// functions of all streams share one thread, and the enqueuing thread has other lanes to feed. So
// the stream waits at a gate, a word in pinned memory that this thread counts up after each piece
// of work. An error is kept, the work behind it is skipped, and every gate still opens.
#pragma once

#include <cudaTypedefs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../cuda_owners.h"

namespace tandem {

// The first exception of a communicator's thread. Any thread.
class FirstError {
 public:
  void keep(std::exception_ptr error);
  [[nodiscard]] bool any() const;
  void rethrow() const;  // nothing when there is none

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

class GateThread {
 public:
  explicit GateThread(const std::string& name);  // for the device that is current
  ~GateThread();                                 // after finish(), or does it itself
  GateThread(const GateThread&) = delete;
  GateThread& operator=(const GateThread&) = delete;

  // `work` starts when the stream has done all that is enqueued now; what is enqueued later starts
  // when `work` has ended. Does not wait. An exception of work poisons the stream, and is thrown
  // by the next run().
  void run(Stream& stream, cudaStream_t handle, std::function<void()> work);
  void finish() noexcept;  // runs what is queued, then ends the thread

 private:
  struct Job {
    std::unique_ptr<CudaMark> before;  // what the work reads is there
    std::function<void()> work;
    std::uint32_t number = 0;  // the gate opens when its word has reached this
  };

  std::unique_ptr<CudaMark> take_mark();
  std::optional<Job> next();
  void loop(const std::string& name);
  void perform(Job job) noexcept;

  const std::shared_ptr<FirstError> error_ = std::make_shared<FirstError>();
  const PFN_cuStreamWaitValue32_v11070 wait_value_;
  int device_ = 0;
  StagingMemory<PinnedSpace> gate_memory_;
  std::uint32_t* gate_ = nullptr;  // the word; the stream compares it as a counter that wraps
  std::uintptr_t gate_on_device_ = 0;
  std::uint32_t last_number_ = 0;

  std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<std::unique_ptr<CudaMark>> free_marks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tandem
