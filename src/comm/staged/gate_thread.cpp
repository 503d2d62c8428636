#include "gate_thread.h"

#include <atomic>
#include <utility>

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
                "this GPU driver has no cuStreamWaitValue32, which ranks that share a GPU need; "
                "give every rank a GPU of its own, or update the driver");
  return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(function);
}

}  // namespace

void FirstError::keep(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

bool FirstError::any() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void FirstError::rethrow() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

GateThread::GateThread(const std::string& name) : wait_value_(find_wait_value()) {
  TANDEM_CUDA_CHECK(cudaGetDevice(&device_));
  gate_ = reinterpret_cast<std::uint32_t*>(gate_memory_.at_least(sizeof(*gate_)));
  *gate_ = 0;
  void* on_device = nullptr;
  TANDEM_CUDA_CHECK(cudaHostGetDevicePointer(&on_device, gate_, 0));
  gate_on_device_ = reinterpret_cast<std::uintptr_t>(on_device);
  thread_ = std::thread([this, name] { loop(name); });
}

GateThread::~GateThread() {
  finish();
}

void GateThread::finish() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // hazard: the work still queued before the memory it uses is freed
  if (thread_.joinable()) thread_.join();
}

void GateThread::run(Stream& stream, cudaStream_t handle, std::function<void()> work) {
  error_->rethrow();
  // A mark for each piece of work under way: waiting for one that was recorded again would wait
  // for a point behind the very gate that this work opens.
  Job job{take_mark(), std::move(work), ++last_number_};
  job.before->record(handle);
  // The work is queued before the gate is closed, so that no failure in between leaves it closed.
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  // hazard: the work's accesses to pinned memory, and the copies enqueued behind the gate
  const CUresult code =
      wait_value_(handle, gate_on_device_, last_number_, CU_STREAM_WAIT_VALUE_GEQ);
  TANDEM_CHECK(code == CUDA_SUCCESS, "cuStreamWaitValue32 on stream {}", stream.name());
  // Only the shared error: the last owner of this closure is a thread of the driver, where no CUDA
  // call may be made.
  stream.call([error = error_] { error->rethrow(); });
}

std::unique_ptr<CudaMark> GateThread::take_mark() {
  const std::lock_guard lock(mutex_);
  if (free_marks_.empty()) return std::make_unique<CudaMark>();
  auto mark = std::move(free_marks_.back());
  free_marks_.pop_back();
  return mark;
}

std::optional<GateThread::Job> GateThread::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
  if (jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void GateThread::loop(const std::string& name) {
  name_this_thread(name);
  cudaSetDevice(device_);
  while (auto job = next()) perform(std::move(*job));
}

void GateThread::perform(Job job) noexcept {
  try {
    // hazard: the copies to pinned memory before the work reads them, and the earlier copies from
    // it before the work writes it again
    TANDEM_CUDA_CHECK(job.before->wait());
    if (!error_->any()) job.work();
  } catch (...) {
    error_->keep(std::current_exception());
  }
  // hazard: the work's writes before the GPU's reads of them behind the gate
  std::atomic_ref<std::uint32_t>(*gate_).store(job.number, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  try {
    free_marks_.push_back(std::move(job.before));
  } catch (...) {  // no memory to keep it: it is destroyed
  }
}

}  // namespace tandem
