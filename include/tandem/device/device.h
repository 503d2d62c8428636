// Device, Stream, Event, Buffer: the whole interface to the machine that computes.
//
// A Stream is a named FIFO of work; an Event is a point in a stream; a Buffer owns bytes. Semantics
// are CUDA's: wait() waits for the record that was latest when wait() was *called* (Event::recorded
// is read at enqueue), and an event never recorded makes wait() a no-op. The first error of a
// stream poisons it: later work is skipped, the poison travels through record/wait, and the next
// host sync throws it. Thread rule: one host thread enqueues on a given stream at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tandem/base/dtype.h"

namespace tandem {

enum class DeviceKind { kCpu, kCuda };

class Event {
 public:
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] virtual bool reached() const = 0;       // the latest record has been reached
  [[nodiscard]] virtual double reached_us() const = 0;  // when, on the device's clock; -1 if not
  // Time from `earlier` to this one, both reached. Finer than a difference of clock readings, whose
  // steps on CUDA grow with the age of the process.
  [[nodiscard]] virtual double us_since(const Event& earlier) const {
    return reached_us() - earlier.reached_us();
  }
 protected:
  Event() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;  // drains, never throws
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] virtual const std::string& name() const = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  // Host work in stream order, run by the stream's worker thread. An exception poisons the stream.
  virtual void call(std::function<void()> work) = 0;
  virtual void sync() = 0;  // blocks the host until the stream is empty; throws the poison
  [[nodiscard]] virtual std::size_t pending() const = 0;  // enqueued and not finished
 protected:
  Stream() = default;
};

class Device;

enum class MemorySpace { kDevice, kHost };

// Owner of bytes, 64-byte aligned, move-only. Freed at once: sync the streams that use it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, std::size_t bytes, MemorySpace space = MemorySpace::kDevice)
      : device_(device), data_(data), bytes_(bytes), space_(space) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  void reset() noexcept;

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(space_, other.space_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemorySpace space_ = MemorySpace::kDevice;
};

struct MemoryStats {
  std::size_t used = 0, peak = 0;  // bytes handed out by alloc
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;  // "cpu, 2 threads"
  // The same for two ranks exactly if they share the hardware: "node7 0000:1B:00.0", "node7 cpu".
  [[nodiscard]] virtual std::string unique_id() const = 0;
  // Throws Error(kMemory) naming `what` and the size. Zero bytes give an empty Buffer.
  virtual Buffer alloc(std::size_t bytes, const std::string& what) = 0;
  // Host memory that copy() reaches without blocking the host (pinned, where that exists).
  virtual Buffer alloc_host(std::size_t bytes, const std::string& what) = 0;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name, int priority) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Asynchronous on the stream; host memory must stay valid until the stream has passed.
  virtual void copy(Stream& stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(Stream& stream, void* to, unsigned char byte, std::size_t bytes) = 0;
  // What is enqueued next starts so much later, give or take some tens of microseconds. Streams are
  // delayed independently, and no compute resource is taken meanwhile. A stream's first call may
  // wait for every other stream.
  virtual void delay(Stream& stream, double us);
  virtual void host_wait(const Event& event) = 0;   // blocks the host; throws the event's poison
  [[nodiscard]] virtual double now_us() const = 0;  // same clock as Event::reached_us
  [[nodiscard]] virtual MemoryStats memory() const = 0;

 private:
  friend class Buffer;
  virtual void release(void* data, std::size_t bytes, MemorySpace space) noexcept = 0;
};

struct CpuOptions {
  int threads = 1;               // workers that share the ops of one stream
  std::size_t memory_limit = 0;  // bytes it hands out; 0 = what the system gives
};
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

struct CudaOptions {
  int ordinal = 0;      // which GPU of those this process sees
  int compute_sms = 0;  // multiprocessors persistent kernels may fill; 0 = all it has
  // Same inputs, same bits. Without it the attention's backward pass is faster and needs less
  // memory for long sequences, but its last bits vary from run to run.
  bool deterministic = true;
};
// Throws Error(kUsage) saying why where this build or this machine has no CUDA device, or where the
// device has fewer multiprocessors than compute_sms.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

// GPUs this process sees; 0 in a build without CUDA and where the driver finds none.
int visible_cuda_devices();

}  // namespace tandem
