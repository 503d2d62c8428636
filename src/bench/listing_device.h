// A device whose copies onto an op list are listed like ops; all else goes to the device behind it.
#pragma once

#include "tandem/base/error.h"
#include "tandem/ops/op_list.h"

namespace tandem::bench {

class ListingDevice final : public Device {
 public:
  explicit ListingDevice(Device& device) : device_(device) {}

  [[nodiscard]] DeviceKind kind() const override { return device_.kind(); }
  [[nodiscard]] std::string description() const override { return device_.description(); }
  [[nodiscard]] std::string unique_id() const override { return device_.unique_id(); }
  Buffer alloc(std::size_t bytes, const std::string& what) override {
    return device_.alloc(bytes, what);
  }
  Buffer alloc_host(std::size_t bytes, const std::string& what) override {
    return device_.alloc_host(bytes, what);
  }
  std::unique_ptr<Stream> make_stream(const std::string& name, int priority) override {
    return device_.make_stream(name, priority);
  }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    list(stream, "copy", 2.0 * static_cast<double>(bytes), bytes,
         [this, to, from, bytes](Stream& real) { device_.copy(real, to, from, bytes); });
  }
  void fill(Stream& stream, void* to, unsigned char byte, std::size_t bytes) override {
    list(stream, "fill", static_cast<double>(bytes), bytes,
         [this, to, byte, bytes](Stream& real) { device_.fill(real, to, byte, bytes); });
  }
  void host_wait(const Event& event) override { device_.host_wait(event); }
  [[nodiscard]] double now_us() const override { return device_.now_us(); }
  [[nodiscard]] MemoryStats memory() const override { return device_.memory(); }

 private:
  static void list(Stream& stream, std::string_view name, double moved, std::size_t bytes,
                   std::function<void(Stream&)> run) {
    auto* ops = dynamic_cast<OpList*>(&stream);
    TANDEM_CHECK(ops != nullptr, "stream {} is no op list", stream.name());
    ops->add({{.name = name, .bytes = moved, .rows = static_cast<std::int64_t>(bytes), .cols = 0},
              std::move(run)});
  }
  void release(void* /*data*/, std::size_t /*bytes*/, MemorySpace /*space*/) noexcept override {}

  Device& device_;
};

}  // namespace tandem::bench
