#include <cudaTypedefs.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/device/cuda_gate_thread.h"
#include "tandem/device/cuda_mark.h"
#include "tandem/device/start_thread.h"
#include "tandem/device/thread_name.h"

namespace tandem {
namespace {

// From the driver that is installed: linking it would keep the program from starting without one.
PFN_cuStreamWaitValue32_v11070 find_wait_value() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  TANDEM_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000,
                                                     cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw_error(ExitCode::kUsage,
                "this GPU driver has no cuStreamWaitValue32, which ranks that share a GPU and "
                "train.alltoall_delay_us need; give every rank a GPU of its own and set no delay, "
                "or update the driver");
  return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(function);
}

// The first exception of the thread. Any thread.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] bool any() const {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  void rethrow() const {  // nothing when there is none
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = error_;
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

// One word of pinned memory; the stream compares it as a counter that wraps.
class GateWord {
 public:
  GateWord() {
    void* data = nullptr;
    if (!TANDEM_CUDA_ALLOCATED(
            cudaHostAlloc(&data, sizeof(*word_), cudaHostAllocPortable | cudaHostAllocMapped)))
      throw_error(ExitCode::kMemory, "out of memory: no pinned host memory for a gate");
    word_ = static_cast<std::uint32_t*>(data);
    *word_ = 0;
  }
  ~GateWord() { cudaFreeHost(word_); }
  GateWord(const GateWord&) = delete;
  GateWord& operator=(const GateWord&) = delete;

  [[nodiscard]] std::uintptr_t on_device() const {
    void* on_device = nullptr;
    TANDEM_CUDA_CHECK(cudaHostGetDevicePointer(&on_device, word_, 0));
    return reinterpret_cast<std::uintptr_t>(on_device);
  }
  void open(std::uint32_t number) {
    std::atomic_ref<std::uint32_t>(*word_).store(number, std::memory_order_release);
  }

 private:
  std::uint32_t* word_ = nullptr;
};

struct Job {
  std::unique_ptr<CudaMark> before;  // what the work reads is there
  std::function<void()> work;
  std::uint32_t number = 0;  // the gate opens when its word has reached this
};

}  // namespace

struct GateThread::State {
  const std::shared_ptr<FirstError> error = std::make_shared<FirstError>();
  const PFN_cuStreamWaitValue32_v11070 wait_value = find_wait_value();
  int device = 0;
  GateWord gate;
  std::uintptr_t gate_on_device = 0;
  std::uint32_t last_number = 0;

  std::mutex mutex;  // guards the three below
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::vector<std::unique_ptr<CudaMark>> free_marks;
  bool stop = false;
  std::thread thread;

  std::unique_ptr<CudaMark> take_mark() {
    const std::lock_guard lock(mutex);
    if (free_marks.empty()) return std::make_unique<CudaMark>();
    auto mark = std::move(free_marks.back());
    free_marks.pop_back();
    return mark;
  }

  std::optional<Job> next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return stop || !jobs.empty(); });
    if (jobs.empty()) return std::nullopt;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  }

  void loop(const std::string& name) {
    name_this_thread(name);
    try {
      TANDEM_CUDA_CHECK(cudaSetDevice(device));
    } catch (...) {
      error->keep(std::current_exception());
    }
    while (auto job = next()) perform(std::move(*job));
  }

  void perform(Job job) noexcept {
    try {
      // hazard: the copies to pinned memory before the work reads them, and the earlier copies from
      // it before the work writes it again
      TANDEM_CUDA_CHECK(job.before->wait());
      if (!error->any()) job.work();
    } catch (...) {
      error->keep(std::current_exception());
    }
    // hazard: the work's writes before the GPU's reads of them behind the gate
    gate.open(job.number);
    const std::lock_guard lock(mutex);
    try {
      free_marks.push_back(std::move(job.before));
    } catch (...) {  // no memory to keep it: it is destroyed
    }
  }
};

GateThread::GateThread(const std::string& name) : state_(std::make_unique<State>()) {
  TANDEM_CUDA_CHECK(cudaGetDevice(&state_->device));
  state_->gate_on_device = state_->gate.on_device();
  state_->thread =
      start_thread(name, "start fewer ranks here, or raise the limit of threads (ulimit -u)",
                   [state = state_.get(), name] { state->loop(name); });
}

GateThread::~GateThread() {
  finish();
}

void GateThread::finish() noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  // hazard: the work still queued before the memory it uses is freed
  if (state_->thread.joinable()) state_->thread.join();
}

void GateThread::run(Stream& stream, CUstream_st* handle, std::function<void()> work) {
  State& s = *state_;
  s.error->rethrow();
  // A mark for each piece of work under way: waiting for one that was recorded again would wait
  // for a point behind the very gate that this work opens.
  Job job{s.take_mark(), std::move(work), ++s.last_number};
  job.before->record(handle);
  // The work is queued before the gate is closed, so that no failure in between leaves it closed.
  {
    const std::lock_guard lock(s.mutex);
    s.jobs.push_back(std::move(job));
  }
  s.changed.notify_one();
  // hazard: the work's accesses to pinned memory, and the copies enqueued behind the gate
  const CUresult code =
      s.wait_value(handle, s.gate_on_device, s.last_number, CU_STREAM_WAIT_VALUE_GEQ);
  TANDEM_CHECK(code == CUDA_SUCCESS, "cuStreamWaitValue32 on stream {}", stream.name());
  // Only the shared error: the last owner of this closure is a thread of the driver, where no CUDA
  // call may be made.
  stream.call([error = s.error] { error->rethrow(); });
}

}  // namespace tandem
