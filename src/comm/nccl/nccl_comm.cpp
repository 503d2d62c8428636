#include "nccl_comm.h"

#include <exception>
#include <utility>

#include "../gpu_comms.h"
#include "copy_runs.h"

namespace tandem {
namespace {

std::size_t bytes_of(const View& view, const std::vector<RowBlock>& blocks) {
  return row_bytes(view) * total_rows(blocks);
}

std::size_t count_of(const View& view) {
  return static_cast<std::size_t>(view.size());
}

// Ends a stream once its work is done; does not wait.
struct StreamEnd {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};

// Where the rows of a part for one peer are one message: the two sides of a pair cut their rows
// differently, and only the total is known to both. Scattered rows go through `room`, and `copies`
// gets what moves them there.
std::byte* pack(const View& view, const std::vector<RowBlock>& blocks, std::byte*& room,
                std::vector<CopyRun>& copies) {
  if (contiguous(blocks)) return first_row(view, blocks);
  std::byte* packed = std::exchange(room, room + staging_size(bytes_of(view, blocks)));
  const View target{packed, view.dtype, static_cast<std::int64_t>(total_rows(blocks)), view.cols};
  add_rows(copies, view, blocks, target, {{0, target.rows}});
  return packed;
}

// As pack(), but the copies move the rows from there to their places.
std::byte* unpack(const View& view, const std::vector<RowBlock>& blocks, std::byte*& room,
                  std::vector<CopyRun>& copies) {
  const std::size_t first = copies.size();
  std::byte* message = pack(view, blocks, room, copies);
  for (std::size_t i = first; i < copies.size(); ++i) {
    CopyRun& run = copies[i];
    std::byte* scattered = const_cast<std::byte*>(run.from);
    run.from = std::exchange(run.to, scattered);
  }
  return message;
}

}  // namespace

NcclComm::NcclComm(Transport& transport, std::string name, const CommOptions& options,
                   AbortState& abort)
    : CheckedComm(transport.rank(), transport.size(), std::move(name)),
      exceptions_(std::uncaught_exceptions()),
      group_(transport, this->name(), options, abort) {
  connect();
  if (options.path == AllToAllPath::kPlain || size() == 1) return;
  TANDEM_CHECK(options.box_bytes > std::size_t{0}, "{}: room in the boxes of an all-to-all",
               this->name());
  mail_ = std::make_unique<MailExchange>(group_, rank(), size(), options.box_bytes,
                                         options.path != AllToAllPath::kWindow);
}

// NCCL links two members at their first message and makes the host wait for the other side, which
// in a pipeline may be waiting for a later call of this rank. So all links are made now, while
// every member is here and nothing else is under way.
void NcclComm::connect() {
  cudaStream_t stream = nullptr;
  TANDEM_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::unique_ptr<CUstream_st, StreamEnd> owner(stream);
  std::byte* pair = staging_.at_least(2 * static_cast<std::size_t>(size()));
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (int peer = 0; peer < size(); ++peer, pair += 2) {
    if (peer == rank()) continue;
    sends.push_back({peer, pair, 1});
    recvs.push_back({peer, pair + 1, 1});
  }
  group_.exchange("first contact", stream, sends, recvs);
  // hazard: the messages before another stream uses the staging memory
  TANDEM_CUDA_CHECK(cudaStreamSynchronize(stream));
}

NcclComm::~NcclComm() {
  if (std::uncaught_exceptions() > exceptions_) group_.give_up();
  // hazard: transfers and copies under way before their communicator and staging memory go
  (void)done_.wait();
}

std::byte* NcclComm::room_for(const AllToAll& plan) {
  std::size_t bytes = 0;
  for (const AllToAll::Part& part : plan.parts) {
    for (int p = 0; p < size(); ++p) {
      const auto peer = static_cast<std::size_t>(p);
      if (p == rank()) continue;
      if (!contiguous(plan.send[peer])) bytes += staging_size(bytes_of(part.send, plan.send[peer]));
      if (!contiguous(plan.recv[peer])) bytes += staging_size(bytes_of(part.recv, plan.recv[peer]));
    }
  }
  return bytes == 0 ? nullptr : staging_.at_least(bytes);
}

void NcclComm::start_all_to_all(Stream& stream, AllToAll plan) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (mail_) {
    mail_->run(handle, plan);
    return done_.record(handle);
  }
  std::byte* room = room_for(plan);
  std::vector<CopyRun> before, behind;
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (const AllToAll::Part& part : plan.parts) {
    for (int p = 0; p < size(); ++p) {
      const auto peer = static_cast<std::size_t>(p);
      if (p == rank()) {
        add_rows(before, part.send, plan.send[peer], part.recv, plan.recv[peer]);
        continue;
      }
      const std::vector<RowBlock>&out = plan.send[peer], &in = plan.recv[peer];
      sends.push_back({p, pack(part.send, out, room, before), bytes_of(part.send, out)});
      recvs.push_back({p, unpack(part.recv, in, room, behind), bytes_of(part.recv, in)});
    }
  }
  copy_runs(before, handle);
  group_.exchange("all_to_all", handle, sends, recvs);
  copy_runs(behind, handle);
  done_.record(handle);
}

void NcclComm::start_all_reduce(Stream& stream, View inout, ReduceOp op) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (inout.size() == 0) return;
  group_.run("all_reduce", [&](ncclComm_t comm) {
    return ncclAllReduce(inout.data, inout.data, count_of(inout), ncclFloat32,
                         op == ReduceOp::kSum ? ncclSum : ncclMax, comm, handle);
  });
  done_.record(handle);
}

void NcclComm::start_reduce_scatter(Stream& stream, View in, View out) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (out.size() == 0) return;
  group_.run("reduce_scatter", [&](ncclComm_t comm) {
    return ncclReduceScatter(in.data, out.data, count_of(out), ncclFloat32, ncclSum, comm, handle);
  });
  done_.record(handle);
}

void NcclComm::start_all_gather(Stream& stream, View in, View out) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (in.size() == 0) return;
  group_.run("all_gather", [&](ncclComm_t comm) {
    return ncclAllGather(in.data, out.data, in.bytes(), ncclInt8, comm, handle);
  });
  done_.record(handle);
}

void NcclComm::start_send(Stream& stream, View from, int peer) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (from.bytes() == 0) return;
  const Outgoing message{peer, from.as<std::byte>(), from.bytes()};
  group_.exchange("send", handle, {&message, 1}, {});
  done_.record(handle);
}

void NcclComm::start_recv(Stream& stream, View to, int peer) {
  const cudaStream_t handle = stream_.of(stream, name());
  if (to.bytes() == 0) return;
  const Incoming message{peer, to.as<std::byte>(), to.bytes()};
  group_.exchange("recv", handle, {}, {&message, 1});
  done_.record(handle);
}

std::unique_ptr<Comm> make_nccl_comm(Transport& transport, std::string name,
                                     const CommOptions& options, AbortState& abort) {
  return std::make_unique<NcclComm>(transport, std::move(name), options, abort);
}

}  // namespace tandem
