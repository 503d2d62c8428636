#include "collectives.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "row_blocks.h"

namespace tandem {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

std::byte* bytes_of(float* data) {
  return reinterpret_cast<std::byte*>(data);
}
const std::byte* bytes_of(const float* data) {
  return reinterpret_cast<const std::byte*>(data);
}

// NaN wins, so that no rank loses sight of it.
float larger(float a, float b) {
  return std::isnan(a) || a > b ? a : b;
}

// acc[i] = acc[i] op x[i]
void combine(float* acc, const float* x, std::int64_t count, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    for (std::int64_t i = 0; i < count; ++i) acc[i] += x[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) acc[i] = larger(acc[i], x[i]);
  }
}

// out = inputs[0] op inputs[1] op ..., in this order. `out` may be one of the inputs.
void reduce_in_order(const std::vector<const float*>& inputs, float* out, std::int64_t count,
                     ReduceOp op) {
  constexpr std::int64_t kBlock = 2048;
  float acc[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    std::memcpy(acc, inputs[0] + begin, float_bytes(n));
    for (std::size_t k = 1; k < inputs.size(); ++k) combine(acc, inputs[k] + begin, n, op);
    std::memcpy(out + begin, acc, float_bytes(n));
  }
}

}  // namespace

std::byte* RoundMemory::at_least(std::size_t bytes) {
  if (bytes > capacity_) {
    data_.reset();
    data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity_ = bytes;
  }
  return data_.get();
}

void Collectives::all_to_all(const AllToAll& plan) {
  const int n = transport_->size();
  const int me = transport_->rank();
  const auto own = static_cast<std::size_t>(me);

  std::size_t packed = 0;
  for (const AllToAll::Part& part : plan.parts) {
    for (std::size_t p = 0; p < static_cast<std::size_t>(n); ++p) {
      if (p == own) continue;
      if (!contiguous(plan.send[p])) packed += row_bytes(part.send) * total_rows(plan.send[p]);
      if (!contiguous(plan.recv[p])) packed += row_bytes(part.recv) * total_rows(plan.recv[p]);
    }
  }
  std::byte* free = scratch_.at_least(packed);

  struct Unpack {
    const std::byte* from;
    View to;
    const std::vector<RowBlock>* blocks;
  };
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  std::vector<Unpack> unpacks;
  for (const AllToAll::Part& part : plan.parts) {
    for (int step = 1; step < n; ++step) {
      const int to = (me + step) % n;
      const std::vector<RowBlock>& out = plan.send[static_cast<std::size_t>(to)];
      if (const std::size_t bytes = row_bytes(part.send) * total_rows(out); bytes > 0) {
        const std::byte* data = first_row(part.send, out);
        if (!contiguous(out)) {
          pack_rows(part.send, out, free);
          data = free;
          free += bytes;
        }
        sends.push_back({to, data, bytes});
      }
      const int from = (me - step + n) % n;
      const std::vector<RowBlock>& in = plan.recv[static_cast<std::size_t>(from)];
      if (const std::size_t bytes = row_bytes(part.recv) * total_rows(in); bytes > 0) {
        std::byte* data = first_row(part.recv, in);
        if (!contiguous(in)) {
          unpacks.push_back({free, part.recv, &in});
          data = free;
          free += bytes;
        }
        recvs.push_back({from, data, bytes});
      }
    }
  }
  for (const AllToAll::Part& part : plan.parts) {
    copy_rows(part.send, plan.send[own], part.recv, plan.recv[own]);
  }
  transport_->exchange(sends, recvs);
  for (const Unpack& unpack : unpacks) unpack_rows(unpack.from, unpack.to, *unpack.blocks);
}

void Collectives::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each) {
  const int n = transport_->size();
  const int me = transport_->rank();
  std::byte* own = out + static_cast<std::size_t>(me) * bytes_each;
  if (own != in && bytes_each > 0) std::memcpy(own, in, bytes_each);
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (int step = 1; step < n; ++step) {
    const int from = (me - step + n) % n;
    sends.push_back({(me + step) % n, own, bytes_each});
    recvs.push_back({from, out + static_cast<std::size_t>(from) * bytes_each, bytes_each});
  }
  transport_->exchange(sends, recvs);
}

void Collectives::reduce_scatter(const float* in, float* out, std::int64_t count_each) {
  std::vector<std::int64_t> bounds;
  for (int p = 0; p <= transport_->size(); ++p) bounds.push_back(p * count_each);
  reduce_own_part(in, out, bounds, ReduceOp::kSum);
}

void Collectives::all_reduce(float* inout, std::int64_t count, ReduceOp op) {
  const int n = transport_->size();
  if (n == 1 || count == 0) return;
  if (count <= kSmallElements) return all_reduce_small(inout, count, op);
  std::vector<std::int64_t> bounds;
  for (int p = 0; p <= n; ++p) bounds.push_back(count * p / n);
  reduce_own_part(inout, inout + bounds[static_cast<std::size_t>(transport_->rank())], bounds, op);
  gather_parts(inout, bounds);
}

void Collectives::all_reduce_small(float* inout, std::int64_t count, ReduceOp op) {
  const int n = transport_->size();
  const std::size_t bytes = float_bytes(count);
  std::byte* all = scratch_.at_least(bytes * static_cast<std::size_t>(n));
  all_gather(bytes_of(inout), all, bytes);
  std::vector<const float*> inputs;
  for (int p = 0; p < n; ++p) inputs.push_back(reinterpret_cast<const float*>(all) + p * count);
  reduce_in_order(inputs, inout, count, op);
}

void Collectives::reduce_own_part(const float* in, float* own,
                                  const std::vector<std::int64_t>& bounds, ReduceOp op) {
  const int n = transport_->size();
  const int me = transport_->rank();
  const auto part_begin = [&](int p) { return bounds[static_cast<std::size_t>(p)]; };
  const auto part_count = [&](int p) { return part_begin(p + 1) - part_begin(p); };
  std::int64_t longest = 0;
  for (int p = 0; p < n; ++p) longest = std::max(longest, part_count(p));
  const std::int64_t round = std::min(longest, kRoundElements);
  auto* scratch =
      reinterpret_cast<float*>(scratch_.at_least(float_bytes(round) * static_cast<std::size_t>(n)));

  for (std::int64_t begin = 0; begin < longest; begin += round) {
    const auto slice = [&](int p) {
      return std::clamp(part_count(p) - begin, std::int64_t{0}, round);
    };
    std::vector<Outgoing> sends;
    std::vector<Incoming> recvs;
    std::vector<const float*> inputs(static_cast<std::size_t>(n));
    inputs[static_cast<std::size_t>(me)] = in + part_begin(me) + begin;
    for (int step = 1; step < n; ++step) {
      const int to = (me + step) % n;
      const int from = (me - step + n) % n;
      float* place = scratch + from * round;
      sends.push_back({to, bytes_of(in + part_begin(to) + begin), float_bytes(slice(to))});
      recvs.push_back({from, bytes_of(place), float_bytes(slice(me))});
      inputs[static_cast<std::size_t>(from)] = place;
    }
    transport_->exchange(sends, recvs);
    reduce_in_order(inputs, own + begin, slice(me), op);
  }
}

void Collectives::gather_parts(float* inout, const std::vector<std::int64_t>& bounds) {
  const int n = transport_->size();
  const int me = transport_->rank();
  const auto begin = [&](int p) { return inout + bounds[static_cast<std::size_t>(p)]; };
  const auto bytes = [&](int p) { return float_bytes(begin(p + 1) - begin(p)); };
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (int step = 1; step < n; ++step) {
    const int from = (me - step + n) % n;
    sends.push_back({(me + step) % n, bytes_of(begin(me)), bytes(me)});
    recvs.push_back({from, bytes_of(begin(from)), bytes(from)});
  }
  transport_->exchange(sends, recvs);
}

void Collectives::send(const std::byte* data, std::size_t bytes, int peer) {
  const Outgoing message{peer, data, bytes};
  transport_->exchange({&message, 1}, {});
}

void Collectives::recv(std::byte* data, std::size_t bytes, int peer) {
  const Incoming message{peer, data, bytes};
  transport_->exchange({}, {&message, 1});
}

}  // namespace tandem
