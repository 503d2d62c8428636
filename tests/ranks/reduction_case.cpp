// Sums and maxima are taken in group-rank order, bit for bit, whatever the size or the path.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "rank_cases.h"

namespace tandem::ranks {
namespace {

// Values whose sum depends on the order of addition.
std::vector<float> input(int member, std::int64_t count) {
  std::vector<float> data(static_cast<std::size_t>(count));
  std::uint32_t state = static_cast<std::uint32_t>(member) * 2654435761U + 12345U;
  for (float& x : data) {
    state = state * 1664525U + 1013904223U;
    const std::uint32_t exponent = 111U + (state >> 28);  // 2^-16 .. 2^-1
    x = std::bit_cast<float>((state & 0x8000000U) << 4 | exponent << 23 | (state >> 4 & 0x7fffffU));
  }
  return data;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

std::vector<float> in_order(int members, std::int64_t count, ReduceOp op) {
  std::vector<float> total = input(0, count);
  for (int p = 1; p < members; ++p) {
    const std::vector<float> x = input(p, count);
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] = op == ReduceOp::kSum ? total[i] + x[i] : std::max(total[i], x[i]);
    }
  }
  return total;
}

View view(std::vector<float>& data) {
  return {data.data(), DType::kF32, static_cast<std::int64_t>(data.size()), 1};
}

void check_all_reduce(Comm& comm, Stream& stream, std::int64_t count, Digest& digest) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    std::vector<float> data = input(comm.rank(), count);
    comm.all_reduce(stream, view(data), op);
    stream.sync();
    expect(same_bits(data, in_order(comm.size(), count, op)),
           fmt::format("all_reduce of {} elements, op {}", count, static_cast<int>(op)));
    digest.add(data.data(), data.size() * sizeof(float));
  }
}

void check_reduce_scatter(Comm& comm, Stream& stream, std::int64_t count, Digest& digest) {
  std::vector<float> data = input(comm.rank(), count * comm.size());
  const std::vector<float> before = data;
  std::vector<float> part(static_cast<std::size_t>(count));
  comm.reduce_scatter(stream, view(data), view(part));
  stream.sync();
  const std::vector<float> total = in_order(comm.size(), count * comm.size(), ReduceOp::kSum);
  const auto begin = total.begin() + comm.rank() * count;
  expect(same_bits(part, {begin, begin + count}), fmt::format("reduce_scatter of {}", count));
  expect(same_bits(data, before), "reduce_scatter leaves its input alone");
  digest.add(part.data(), part.size() * sizeof(float));
}

void check_all_gather(Comm& comm, Stream& stream, std::int64_t count, bool in_place) {
  std::vector<float> mine = input(comm.rank(), count);
  std::vector<float> all(static_cast<std::size_t>(count * comm.size()), -7.0F);
  View from = view(mine);
  if (in_place) {
    from = view(all).slice(comm.rank() * count, count);
    std::copy(mine.begin(), mine.end(), all.begin() + comm.rank() * count);
  }
  comm.all_gather(stream, from, view(all));
  stream.sync();
  std::vector<float> expected;
  for (int p = 0; p < comm.size(); ++p) {
    const std::vector<float> part = input(p, count);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  expect(same_bits(all, expected), fmt::format("all_gather of {}", count));
}

void check_nan(Comm& comm, Stream& stream) {
  std::vector<float> data{1.0F, 2.0F};
  if (comm.rank() == comm.size() / 2) data[1] = std::numeric_limits<float>::quiet_NaN();
  comm.all_reduce(stream, view(data), ReduceOp::kMax);
  stream.sync();
  expect(data[0] == 1.0F && std::isnan(data[1]), "a NaN survives the maximum");
}

}  // namespace

std::uint64_t reduction_case(World& world) {
  Lane lane("dp");
  const auto comm = world.make_comm(everyone(world), "dp");
  Digest digest;
  abort_on_error(world, [&] {
    // 4096 elements, and 131072 per rank: where the path and the number of rounds change.
    for (const std::int64_t count : {0, 1, 3, 4096, 4097, 100003, 270001}) {
      check_all_reduce(*comm, *lane.stream, count, digest);
    }
    for (const std::int64_t count : {0, 1, 1000, 131077}) {
      check_reduce_scatter(*comm, *lane.stream, count, digest);
      check_all_gather(*comm, *lane.stream, count, count == 1000);
    }
    check_nan(*comm, *lane.stream);
  });
  return digest.value();
}

}  // namespace tandem::ranks
