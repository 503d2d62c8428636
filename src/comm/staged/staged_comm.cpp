#include "staged_comm.h"

#include <utility>

#include "../gpu_comms.h"
#include "../row_blocks.h"

namespace tandem {
namespace {

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > 0 && to != from) TANDEM_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
}

void copy_rows(const View& from, const std::vector<RowBlock>& from_blocks, const View& to,
               const std::vector<RowBlock>& to_blocks, cudaMemcpyKind kind, cudaStream_t stream) {
  for_each_run(from_blocks, to_blocks,
               [&](std::int64_t source, std::int64_t target, std::int64_t rows) {
                 copy(row(to, target), row(from, source),
                      static_cast<std::size_t>(rows) * row_bytes(from), kind, stream);
               });
}

std::int64_t all_rows(const std::vector<std::vector<RowBlock>>& blocks) {
  std::int64_t rows = 0;
  for (const auto& of_member : blocks) rows += static_cast<std::int64_t>(total_rows(of_member));
  return rows;
}

}  // namespace

StagedComm::StagedComm(std::unique_ptr<Transport> transport, std::string name)
    : CheckedComm(transport->rank(), transport->size(), std::move(name)),
      collectives_(std::move(transport)),
      thread_(this->name()) {}

StagedComm::~StagedComm() {
  thread_.finish();
  // hazard: the copies behind the last gate before their pinned memory is freed
  (void)done_.wait();
}

StagedComm::Blocks StagedComm::packed(const Blocks& blocks) const {
  Blocks result;
  std::int64_t begin = 0;
  for (int p = 0; p < size(); ++p) {
    const auto rows = static_cast<std::int64_t>(total_rows(blocks[static_cast<std::size_t>(p)])) *
                      (p == rank() ? 0 : 1);
    result.push_back({{begin, rows}});
    begin += rows;
  }
  return result;
}

AllToAll StagedComm::on_host(const AllToAll& plan) {
  AllToAll host{.parts = {}, .send = packed(plan.send), .recv = packed(plan.recv)};
  const std::int64_t sent = all_rows(host.send), received = all_rows(host.recv);
  const auto bytes = [](const View& part, std::int64_t rows) {
    return staging_size(static_cast<std::size_t>(rows) * row_bytes(part));
  };
  std::size_t total = 0;
  for (const AllToAll::Part& part : plan.parts)
    total += bytes(part.send, sent) + bytes(part.recv, received);
  std::byte* free = pinned_.at_least(total);
  for (const AllToAll::Part& part : plan.parts) {
    const View send{free, part.send.dtype, sent, part.send.cols};
    free += bytes(part.send, sent);
    const View recv{free, part.recv.dtype, received, part.recv.cols};
    free += bytes(part.recv, received);
    host.parts.push_back({send, recv});
  }
  return host;
}

void StagedComm::start_all_to_all(Stream& stream, AllToAll plan) {
  const cudaStream_t handle = stream_.of(stream, name());
  const auto own = static_cast<std::size_t>(rank());
  for (const AllToAll::Part& part : plan.parts)
    copy_rows(part.send, plan.send[own], part.recv, plan.recv[own], cudaMemcpyDeviceToDevice,
              handle);
  if (size() == 1) return;

  const AllToAll host = on_host(plan);
  for (std::size_t i = 0; i < plan.parts.size(); ++i)
    for (std::size_t p = 0; p < plan.send.size(); ++p)
      if (p != own)
        copy_rows(plan.parts[i].send, plan.send[p], host.parts[i].send, host.send[p],
                  cudaMemcpyDeviceToHost, handle);
  thread_.run(stream, handle, [this, host] { collectives_.all_to_all(host); });
  for (std::size_t i = 0; i < plan.parts.size(); ++i)
    for (std::size_t p = 0; p < plan.recv.size(); ++p)
      if (p != own)
        copy_rows(host.parts[i].recv, host.recv[p], plan.parts[i].recv, plan.recv[p],
                  cudaMemcpyHostToDevice, handle);
  done_.record(handle);
}

void StagedComm::start_all_reduce(Stream& stream, View inout, ReduceOp op) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (size() == 1 || inout.size() == 0) return;
  auto* host = reinterpret_cast<float*>(pinned_.at_least(inout.bytes()));
  copy(host, inout.data, inout.bytes(), cudaMemcpyDeviceToHost, handle);
  thread_.run(stream, handle,
              [this, host, count = inout.size(), op] { collectives_.all_reduce(host, count, op); });
  copy(inout.data, host, inout.bytes(), cudaMemcpyHostToDevice, handle);
  done_.record(handle);
}

void StagedComm::start_reduce_scatter(Stream& stream, View in, View out) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (size() == 1) return copy(out.data, in.data, in.bytes(), cudaMemcpyDeviceToDevice, handle);
  if (out.size() == 0) return;
  auto* all = reinterpret_cast<float*>(pinned_.at_least(in.bytes() + out.bytes()));
  float* mine = all + in.size();
  copy(all, in.data, in.bytes(), cudaMemcpyDeviceToHost, handle);
  thread_.run(stream, handle, [this, all, mine, count = out.size()] {
    collectives_.reduce_scatter(all, mine, count);
  });
  copy(out.data, mine, out.bytes(), cudaMemcpyHostToDevice, handle);
  done_.record(handle);
}

void StagedComm::start_all_gather(Stream& stream, View in, View out) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (size() == 1) return copy(out.data, in.data, in.bytes(), cudaMemcpyDeviceToDevice, handle);
  if (in.size() == 0) return;
  std::byte* all = pinned_.at_least(out.bytes());
  std::byte* mine = all + static_cast<std::size_t>(rank()) * in.bytes();
  copy(mine, in.data, in.bytes(), cudaMemcpyDeviceToHost, handle);
  thread_.run(stream, handle,
              [this, all, mine, bytes = in.bytes()] { collectives_.all_gather(mine, all, bytes); });
  copy(out.data, all, out.bytes(), cudaMemcpyHostToDevice, handle);
  done_.record(handle);
}

void StagedComm::start_send(Stream& stream, View from, int peer) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (from.bytes() == 0) return;
  std::byte* host = pinned_.at_least(from.bytes());
  copy(host, from.data, from.bytes(), cudaMemcpyDeviceToHost, handle);
  thread_.run(stream, handle,
              [this, host, bytes = from.bytes(), peer] { collectives_.send(host, bytes, peer); });
  done_.record(handle);
}

void StagedComm::start_recv(Stream& stream, View to, int peer) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (to.bytes() == 0) return;
  std::byte* host = pinned_.at_least(to.bytes());
  thread_.run(stream, handle,
              [this, host, bytes = to.bytes(), peer] { collectives_.recv(host, bytes, peer); });
  copy(to.data, host, to.bytes(), cudaMemcpyHostToDevice, handle);
  done_.record(handle);
}

std::unique_ptr<Comm> make_staged_comm(std::unique_ptr<Transport> transport, std::string name) {
  return std::make_unique<StagedComm>(std::move(transport), std::move(name));
}

}  // namespace tandem
