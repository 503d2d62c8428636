#include "gpu_world.h"

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace tandem::ranks {

// The lane of one communicator on the GPU. Calls run on the case's CPU stream and block it.
class GpuWorld::Mirror : public Comm {
 public:
  Mirror(GpuWorld& world, const std::vector<int>& members, const std::string& name)
      : world_(world),
        stream_(world.device_->make_stream(name, 1)),
        comm_(world.world_.make_comm(members, name, world.options_)) {}
  ~Mirror() override {
    for (auto& [host, buffer] : buffers_) world_.buffers_.push_back(std::move(buffer));
  }

  [[nodiscard]] int rank() const override { return comm_->rank(); }
  [[nodiscard]] int size() const override { return comm_->size(); }
  [[nodiscard]] const std::string& name() const override { return comm_->name(); }

  void all_to_all(Stream& stream, AllToAll plan) override {
    stream.call([this, plan = std::move(plan)] {
      AllToAll on_gpu = plan;
      for (std::size_t i = 0; i < plan.parts.size(); ++i) {
        on_gpu.parts[i].send = to_gpu(plan.parts[i].send);
        on_gpu.parts[i].recv = to_gpu(plan.parts[i].recv);
      }
      comm_->all_to_all(*stream_, on_gpu);
      for (std::size_t i = 0; i < plan.parts.size(); ++i)
        to_host(on_gpu.parts[i].recv, plan.parts[i].recv);
      stream_->sync();
    });
  }
  void all_reduce(Stream& stream, View inout, ReduceOp op) override {
    call(stream, inout, inout, [this, op](View in, View) { comm_->all_reduce(*stream_, in, op); });
  }
  void reduce_scatter(Stream& stream, View in, View out) override {
    call(stream, in, out, [this](View a, View b) { comm_->reduce_scatter(*stream_, a, b); });
  }
  void all_gather(Stream& stream, View in, View out) override {
    call(stream, in, out, [this](View a, View b) { comm_->all_gather(*stream_, a, b); });
  }
  void send(Stream& stream, View from, int peer) override {
    call(stream, from, {}, [this, peer](View a, View) { comm_->send(*stream_, a, peer); });
  }
  void recv(Stream& stream, View to, int peer) override {
    call(stream, {}, to, [this, peer](View, View b) { comm_->recv(*stream_, b, peer); });
  }

 private:
  void call(Stream& stream, View in, View out, std::function<void(View, View)> body) {
    stream.call([this, in, out, body = std::move(body)] {
      const View source = to_gpu(in);
      const View target = out.data == in.data ? source : to_gpu(out);
      body(source, target);
      to_host(target, out);
      stream_->sync();
    });
  }
  // The same place for the same host memory and size.
  View to_gpu(View host) {
    cudaSetDevice(world_.ordinal_);  // streams of the CPU device have threads of their own
    if (host.bytes() == 0) return host;
    Buffer& buffer = buffers_[{host.data, host.bytes()}];
    if (buffer.bytes() == 0) buffer = world_.device_->alloc(host.bytes(), "a mirrored buffer");
    world_.device_->copy(*stream_, buffer.data(), host.data, host.bytes());
    return {buffer.data(), host.dtype, host.rows, host.cols};
  }
  void to_host(View gpu, View host) {
    if (host.bytes() > 0) world_.device_->copy(*stream_, host.data, gpu.data, host.bytes());
  }

  GpuWorld& world_;
  std::map<std::pair<void*, std::size_t>, Buffer> buffers_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Comm> comm_;  // goes first, as in the engine
};

GpuWorld::GpuWorld(World& world, const CommOptions& options, int ordinal)
    : world_(world),
      options_(options),
      ordinal_(ordinal),
      device_(make_cuda_device({.ordinal = ordinal})) {}

GpuWorld::~GpuWorld() = default;

std::unique_ptr<Comm> GpuWorld::make_comm(const std::vector<int>& members, const std::string& name,
                                          const CommOptions& /*ignored*/) {
  return std::make_unique<Mirror>(*this, members, name);
}

}  // namespace tandem::ranks
