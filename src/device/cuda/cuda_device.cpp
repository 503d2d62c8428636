#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/host_name.h"
#include "tandem/base/units.h"
#include "tandem/device/cuda_check.h"
#include "tandem/device/cuda_gate_thread.h"
#include "tandem/device/cuda_stream.h"
#include "tandem/device/device.h"

namespace tandem {
namespace {

// Whether what a query asks for has been reached. "Not ready" stays behind as the thread's last
// error, where the check of the next launch would take it for its own.
bool ready(cudaError_t status) {
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status == cudaSuccess;
}

class CudaEvent : public Event {
 public:
  explicit CudaEvent(cudaEvent_t origin) : origin_(origin) {
    TANDEM_CUDA_CHECK(cudaEventCreate(&event_));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  [[nodiscard]] bool reached() const override { return ready(cudaEventQuery(event_)); }
  [[nodiscard]] double reached_us() const override {
    float ms = 0.0F;
    if (!recorded_ || !ready(cudaEventElapsedTime(&ms, origin_, event_))) return -1.0;
    return 1e3 * static_cast<double>(ms);
  }
  [[nodiscard]] double us_since(const Event& earlier) const override {
    const auto* begin = dynamic_cast<const CudaEvent*>(&earlier);
    TANDEM_CHECK(begin != nullptr, "a CUDA event was compared with one of another device");
    float ms = 0.0F;
    TANDEM_CUDA_CHECK(cudaEventElapsedTime(&ms, begin->event_, event_));
    return 1e3 * static_cast<double>(ms);
  }
  [[nodiscard]] cudaEvent_t handle() const { return event_; }
  void mark_recorded() { recorded_ = true; }

 private:
  const cudaEvent_t origin_;
  cudaEvent_t event_ = nullptr;
  std::atomic<bool> recorded_ = false;
};

const CudaEvent& cuda_event(const Event& event) {
  const auto* cuda = dynamic_cast<const CudaEvent*>(&event);
  TANDEM_CHECK(cuda != nullptr, "a CUDA stream was given an event of another device");
  return *cuda;
}

// The first exception of host work on a stream. The GPU's own errors are sticky in the runtime.
struct Poison {
  std::mutex mutex;
  std::exception_ptr first;

  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (!first) first = std::move(error);
  }
  std::exception_ptr get() {
    const std::lock_guard lock(mutex);
    return first;
  }
};

class CudaLane : public CudaStream {
 public:
  CudaLane(std::string name, int priority, int sm_budget, bool deterministic,
           std::shared_ptr<Poison> poison)
      : name_(std::move(name)),
        sm_budget_(sm_budget),
        deterministic_(deterministic),
        poison_(std::move(poison)) {
    int least = 0, greatest = 0;
    TANDEM_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TANDEM_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                                   priority > 0 ? greatest : least));
  }
  ~CudaLane() override {
    // hazard: work still enqueued and the handles and workspaces it uses
    cudaStreamSynchronize(stream_);
    drop_locals();
    cudaStreamDestroy(stream_);
  }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] CUstream_st* handle() const override { return stream_; }
  [[nodiscard]] int sm_budget() const override { return sm_budget_; }
  [[nodiscard]] bool deterministic() const override { return deterministic_; }

  void record(Event& event) override {
    auto& cuda = const_cast<CudaEvent&>(cuda_event(event));
    TANDEM_CUDA_CHECK(cudaEventRecord(cuda.handle(), stream_));
    cuda.mark_recorded();
  }
  void wait(const Event& event) override {
    // hazard: the caller names the accesses; an event never recorded makes this a no-op
    TANDEM_CUDA_CHECK(cudaStreamWaitEvent(stream_, cuda_event(event).handle()));
  }
  void call(std::function<void()> work) override {
    auto job = std::make_unique<Job>(Job{std::move(work), poison_});
    TANDEM_CUDA_CHECK(cudaLaunchHostFunc(stream_, run_job, job.get()));
    job.release();  // run_job deletes it
  }
  void sync() override {
    // hazard: everything enqueued here and whatever the host does next
    TANDEM_CUDA_CHECK(cudaStreamSynchronize(stream_));
    if (const auto error = poison_->get()) std::rethrow_exception(error);
  }
  [[nodiscard]] std::size_t pending() const override {
    return ready(cudaStreamQuery(stream_)) ? 0 : 1;
  }

 private:
  struct Job {
    std::function<void()> work;
    std::shared_ptr<Poison> poison;
  };
  static void CUDART_CB run_job(void* data) {
    const std::unique_ptr<Job> job(static_cast<Job*>(data));
    if (job->poison->get()) return;
    try {
      job->work();
    } catch (...) {
      job->poison->keep(std::current_exception());
    }
  }

  const std::string name_;
  const int sm_budget_;
  const bool deterministic_;
  const std::shared_ptr<Poison> poison_;  // shared by the device's streams
  cudaStream_t stream_ = nullptr;
};

// Delays of one stream. A kernel that waits would keep a persistent kernel from starting on its
// multiprocessor, and a host function would hold up those of all streams.
class DelayThread {
 public:
  explicit DelayThread(CudaStream& stream) : stream_(stream), thread_("delay " + stream.name()) {}

  void delay(double us) {
    thread_.run(stream_, stream_.handle(), [us] {
      using Clock = std::chrono::steady_clock;
      const std::chrono::duration<double, std::micro> wanted(us);
      const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(wanted);
      // The system wakes a sleeper some tens of microseconds late: the end is waited for awake.
      std::this_thread::sleep_for(wanted - kLateWakeUp);
      while (Clock::now() < end) std::this_thread::yield();
    });
  }

 private:
  static constexpr std::chrono::microseconds kLateWakeUp{100};
  CudaStream& stream_;
  GateThread thread_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : deterministic_(options.deterministic), poison_(std::make_shared<Poison>()) {
    TANDEM_CUDA_CHECK(cudaSetDevice(options.ordinal));
    TANDEM_CUDA_CHECK(cudaGetDeviceProperties(&properties_, options.ordinal));
    sm_budget_ = sm_budget_of(options.compute_sms, properties_.multiProcessorCount);
    set_up_pool(options.ordinal);
    TANDEM_CUDA_CHECK(cudaStreamCreateWithFlags(&memory_stream_, cudaStreamNonBlocking));
    TANDEM_CUDA_CHECK(cudaEventCreate(&origin_));
    TANDEM_CUDA_CHECK(cudaEventRecord(origin_, nullptr));
    // hazard: the origin of the clock and the first event measured against it
    TANDEM_CUDA_CHECK(cudaEventSynchronize(origin_));
    begin_ = std::chrono::steady_clock::now();
  }
  ~CudaDevice() override {
    cudaEventDestroy(origin_);
    cudaStreamDestroy(memory_stream_);
  }

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCuda; }
  [[nodiscard]] std::string description() const override {
    return fmt::format(
        "{}, {} SMs, {:.0f} GiB", properties_.name, properties_.multiProcessorCount,
        static_cast<double>(properties_.totalGlobalMem) / kGib);
  }

  [[nodiscard]] std::string unique_id() const override {
    return fmt::format("{} {:04X}:{:02X}:{:02X}", host_name(), properties_.pciDomainID,
                       properties_.pciBusID, properties_.pciDeviceID);
  }

  Buffer alloc(std::size_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    // From the driver's pool and in order of a stream of its own: cudaMalloc and cudaFree may wait
    // for every lane, and a lane may be waiting for another rank that waits for this one.
    void* data = nullptr;
    if (!TANDEM_CUDA_ALLOCATED(cudaMallocAsync(&data, bytes, memory_stream_))) {
      std::size_t left = 0, total = 0;
      cudaMemGetInfo(&left, &total);
      throw_error(ExitCode::kMemory,
                  "out of memory: {} needs {} bytes, the GPU has {} of {} left; use smaller "
                  "micro-batches, or spread the model over more ranks",
                  what, bytes, left, total);
    }
    // hazard: the allocation before any lane touches the memory
    TANDEM_CUDA_CHECK(cudaStreamSynchronize(memory_stream_));
    const std::lock_guard lock(mutex_);
    stats_.used += bytes;
    stats_.peak = std::max(stats_.peak, stats_.used);
    return {this, data, bytes};
  }

  Buffer alloc_host(std::size_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    void* data = nullptr;
    if (!TANDEM_CUDA_ALLOCATED(cudaMallocHost(&data, bytes)))
      throw_error(ExitCode::kMemory, "out of memory: {} needs {} bytes of pinned host memory", what,
                  bytes);
    return {this, data, bytes, MemorySpace::kHost};
  }

  std::unique_ptr<Stream> make_stream(const std::string& name, int priority) override {
    return std::make_unique<CudaLane>(name, priority, sm_budget_, deterministic_, poison_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(origin_); }

  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    TANDEM_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle(stream)));
  }
  void fill(Stream& stream, void* to, unsigned char byte, std::size_t bytes) override {
    if (bytes == 0) return;
    TANDEM_CUDA_CHECK(cudaMemsetAsync(to, byte, bytes, handle(stream)));
  }
  void delay(Stream& stream, double us) override { own(stream).local<DelayThread>().delay(us); }
  void host_wait(const Event& event) override {
    // hazard: the stream's work before the event and the host's reads after host_wait
    TANDEM_CUDA_CHECK(cudaEventSynchronize(cuda_event(event).handle()));
    if (const auto error = poison_->get()) std::rethrow_exception(error);
  }
  [[nodiscard]] double now_us() const override {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
        .count();
  }
  [[nodiscard]] MemoryStats memory() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static int sm_budget_of(int wanted, int all) {
    if (wanted >= 0 && wanted <= all) return wanted > 0 ? wanted : all;
    throw_error(ExitCode::kUsage,
                "train.compute_sms = {}, but the GPU has {} multiprocessors; give at most {}, or 0 "
                "for all",
                wanted, all, all);
  }
  // Freed memory stays with the process, and a stream never waits for another to free some: the
  // other may be waiting for a rank that waits for this stream. It is out of memory then.
  static void set_up_pool(int ordinal) {
    cudaMemPool_t pool = nullptr;
    TANDEM_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, ordinal));
    std::uint64_t all = UINT64_MAX;
    TANDEM_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    int never = 0;
    TANDEM_CUDA_CHECK(
        cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &never));
  }
  static CudaStream& own(Stream& stream) {
    auto* cuda = dynamic_cast<CudaStream*>(&stream);
    TANDEM_CHECK(cuda != nullptr, "stream {} is not a CUDA stream", stream.name());
    return *cuda;
  }
  static cudaStream_t handle(Stream& stream) { return own(stream).handle(); }
  void release(void* data, std::size_t bytes, MemorySpace space) noexcept override {
    if (space == MemorySpace::kHost) {
      cudaFreeHost(data);
      return;
    }
    cudaFreeAsync(data, memory_stream_);
    const std::lock_guard lock(mutex_);
    stats_.used -= bytes;
  }

  const bool deterministic_;
  cudaDeviceProp properties_{};
  int sm_budget_ = 0;
  cudaStream_t memory_stream_ = nullptr;
  cudaEvent_t origin_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  const std::shared_ptr<Poison> poison_;
  mutable std::mutex mutex_;
  MemoryStats stats_;  // guarded by mutex_
};

// What the driver reads when it starts. Streams that share one of its few queues wait for each
// other's waits, and a kernel that is loaded at its first launch waits for all streams; a lane that
// waits for another rank may then hold up the very lane that rank waits for. So as many queues as
// there can be, and kernels loaded at the start.
void prepare_driver() {
  static const int kAsked = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0) |
                            setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  (void)kAsked;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  const int visible = visible_cuda_devices();
  if (visible == 0)
    throw_error(ExitCode::kUsage,
                "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or set "
                "train.device=cpu");
  if (options.ordinal < 0 || options.ordinal >= visible)
    throw_error(ExitCode::kUsage,
                "GPU {} was asked for, but this process sees {}: start fewer "
                "ranks on this host, or set CUDA_VISIBLE_DEVICES",
                options.ordinal, visible);
  return std::make_unique<CudaDevice>(options);
}

int visible_cuda_devices() {
  prepare_driver();
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

}  // namespace tandem
