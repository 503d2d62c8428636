#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "clock.h"
#include "cpu_event.h"
#include "fifo_stream.h"
#include "tandem/base/error.h"
#include "tandem/base/host_name.h"
#include "tandem/device/device.h"

namespace tandem {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector load

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : memory_limit_(options.memory_limit), workers_(std::max(1, options.threads)) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCpu; }

  [[nodiscard]] std::string description() const override {
    const int n = workers_.threads();
    return fmt::format("cpu, {} thread{}", n, n == 1 ? "" : "s");
  }

  [[nodiscard]] std::string unique_id() const override { return host_name() + " cpu"; }

  Buffer alloc(std::size_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    const std::lock_guard lock(mutex_);
    if (memory_limit_ != 0 && (bytes > memory_limit_ || stats_.used > memory_limit_ - bytes)) {
      throw_error(ExitCode::kMemory,
                  "out of memory: {} needs {} bytes, {} are in use and no more than {} may be; use "
                  "smaller micro-batches, or spread the model over more ranks",
                  what, bytes, stats_.used, memory_limit_);
    }
    void* data = ::operator new(bytes, kAlignment, std::nothrow);
    if (data == nullptr) {
      throw_error(ExitCode::kMemory,
                  "out of memory: the system refused {} bytes for {} ({} are in use); use smaller "
                  "micro-batches, or spread the model over more ranks",
                  bytes, what, stats_.used);
    }
    stats_.used += bytes;
    stats_.peak = std::max(stats_.peak, stats_.used);
    return {this, data, bytes};
  }

  Buffer alloc_host(std::size_t bytes, const std::string& what) override {
    return alloc(bytes, what);
  }

  std::unique_ptr<Stream> make_stream(const std::string& name, int /*priority*/) override {
    return std::make_unique<cpu::FifoStream>(name, clock_, &workers_);
  }

  std::unique_ptr<Event> make_event() override { return std::make_unique<cpu::CpuEvent>(); }

  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    stream.call([=] { std::memcpy(to, from, bytes); });
  }

  void fill(Stream& stream, void* to, unsigned char byte, std::size_t bytes) override {
    if (bytes == 0) return;
    stream.call([=] { std::memset(to, byte, bytes); });
  }

  void host_wait(const Event& event) override {
    const auto* cpu_event = dynamic_cast<const cpu::CpuEvent*>(&event);
    TANDEM_CHECK(cpu_event != nullptr, "host_wait was given an event of another device");
    const std::shared_ptr<cpu::Point> point = cpu_event->latest();
    if (point == nullptr) return;
    // hazard: the stream's writes before the event and the host's reads after host_wait
    if (const std::exception_ptr poison = point->wait()) std::rethrow_exception(poison);
  }

  [[nodiscard]] double now_us() const override { return clock_.now_us(); }

  [[nodiscard]] MemoryStats memory() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  void release(void* data, std::size_t bytes, MemorySpace /*space*/) noexcept override {
    ::operator delete(data, kAlignment);
    const std::lock_guard lock(mutex_);
    stats_.used -= bytes;
  }

  const std::size_t memory_limit_;
  const cpu::Clock clock_;
  mutable std::mutex mutex_;
  MemoryStats stats_;  // guarded by mutex_
  Workers workers_;    // shared by the streams: the compute lane has it nearly always
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace tandem
