// A CPU device one of whose streams sleeps before every piece of its work, so that every other lane
// overtakes it wherever nothing makes it wait.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/device/cpu_stream.h"

namespace tandem {

class SlowStream : public CpuStream {
 public:
  explicit SlowStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  void record(Event& event) override { inner_->record(event); }
  void wait(const Event& event) override { inner_->wait(event); }
  void call(std::function<void()> work) override {
    inner_->call([work = std::move(work)] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      work();
    });
  }
  // hazard: none of its own; the caller names the accesses
  void sync() override { inner_->sync(); }
  [[nodiscard]] std::size_t pending() const override { return inner_->pending(); }
  [[nodiscard]] Workers& workers() override { return dynamic_cast<CpuStream&>(*inner_).workers(); }

 private:
  std::unique_ptr<Stream> inner_;
};

class SlowLaneDevice : public Device {
 public:
  explicit SlowLaneDevice(std::string slow)
      : inner_(make_cpu_device({.threads = 1})), slow_(std::move(slow)) {}

  [[nodiscard]] DeviceKind kind() const override { return inner_->kind(); }
  [[nodiscard]] std::string description() const override { return inner_->description(); }
  [[nodiscard]] std::string unique_id() const override { return inner_->unique_id(); }
  Buffer alloc(std::size_t bytes, const std::string& what) override {
    return inner_->alloc(bytes, what);
  }
  Buffer alloc_host(std::size_t bytes, const std::string& what) override {
    return inner_->alloc_host(bytes, what);
  }
  std::unique_ptr<Stream> make_stream(const std::string& name, int priority) override {
    auto stream = inner_->make_stream(name, priority);
    if (name != slow_) return stream;
    return std::make_unique<SlowStream>(std::move(stream));
  }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    inner_->copy(stream, to, from, bytes);
  }
  void fill(Stream& stream, void* to, unsigned char byte, std::size_t bytes) override {
    inner_->fill(stream, to, byte, bytes);
  }
  // hazard: none of its own; the caller names the accesses
  void host_wait(const Event& event) override { inner_->host_wait(event); }
  [[nodiscard]] double now_us() const override { return inner_->now_us(); }
  [[nodiscard]] MemoryStats memory() const override { return inner_->memory(); }

 private:
  void release(void*, std::size_t, MemorySpace) noexcept override {}  // buffers are the inner one's

  std::unique_ptr<Device> inner_;
  std::string slow_;
};

}  // namespace tandem
