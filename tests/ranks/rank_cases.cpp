#include "rank_cases.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "tandem/base/rng.h"

namespace tandem::ranks {

void expect(bool ok, const std::string& what) {
  if (!ok) throw Error(ExitCode::kInternal, "expected: " + what);
}

void Digest::add(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ at[i]) * 1099511628211ULL;
}

Lane::Lane(const std::string& name)
    : device(make_cpu_device({})), stream(device->make_stream(name, 0)) {}

std::vector<int> everyone(const World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::int64_t whole(std::uint64_t stream, std::uint64_t index, std::int64_t limit) {
  return static_cast<std::int64_t>(philox(11, stream, index)[0]) % limit;
}

namespace {

View view(std::vector<float>& data) {
  return {data.data(), DType::kF32, static_cast<std::int64_t>(data.size()), 1};
}

std::uint64_t world_case(World& world) {
  const int n = world.size();
  const int me = world.rank();
  expect(world.local_size() == n && world.local_rank() == me, "all ranks are on this host");
  world.barrier();
  expect(world.sum(me + 1) == n * (n + 1) / 2.0, "sum");
  expect(world.max(-5.0 - me) == -5.0, "max");
  const std::string text("a\0b", 3);
  for (int root = 0; root < n; ++root) {
    expect(world.broadcast(me == root ? text : "ignored", root) == text, "broadcast");
    expect(world.broadcast(me == root ? "" : "ignored", root).empty(), "broadcast of nothing");
  }
  const std::vector<std::string> all = world.gather(std::string(static_cast<std::size_t>(me), 'x'));
  expect(all.size() == static_cast<std::size_t>(n), "gather");
  for (int p = 0; p < n; ++p) {
    expect(all[static_cast<std::size_t>(p)] == std::string(static_cast<std::size_t>(p), 'x'),
           "gather in rank order");
  }
  // The order of addition is the ranks': 1 + 1e16 - 1e16 differs from 1e16 - 1e16 + 1.
  const std::array<double, 4> terms{1, 1e16, -1e16, 1};
  double expected = 0;
  for (int p = 0; p < n; ++p) expected += terms[static_cast<std::size_t>(p) % 4];
  expect(world.sum(terms[static_cast<std::size_t>(me) % 4]) == expected, "sum in rank order");
  return 0;
}

// Members listed in another order, and groups that split the world.
std::uint64_t groups_case(World& world) {
  const int n = world.size();
  const int me = world.rank();
  std::vector<int> backwards = everyone(world);
  std::reverse(backwards.begin(), backwards.end());
  std::vector<int> parity;
  for (int r = me % 2; r < n; r += 2) parity.push_back(r);
  Lane lane;
  const auto reversed = world.make_comm(backwards, "reversed");
  const auto half = world.make_comm(parity, "parity");
  const auto alone = world.make_comm({me}, "alone");
  abort_on_error(world, [&] {
    expect(reversed->rank() == n - 1 - me, "the place in the list is the group rank");
    expect(half->size() == static_cast<int>(parity.size()), "group size");
    expect(alone->name() == fmt::format("alone@rank{}: ranks {}", me, me), alone->name());
    std::vector<float> mine{static_cast<float>(me)};
    std::vector<float> all(static_cast<std::size_t>(n));
    reversed->all_gather(*lane.stream, view(mine), view(all));
    lane.stream->sync();
    for (int p = 0; p < n; ++p) {
      expect(all[static_cast<std::size_t>(p)] == static_cast<float>(n - 1 - p), "group order");
    }
    half->all_reduce(*lane.stream, view(mine), ReduceOp::kSum);
    alone->all_reduce(*lane.stream, view(mine), ReduceOp::kSum);
    lane.stream->sync();
    expect(mine[0] == static_cast<float>(std::accumulate(parity.begin(), parity.end(), 0)),
           "the halves do not mix");
  });
  return 0;
}

// Lanes of one rank run ahead of each other; every rank enqueues them in another order.
std::uint64_t concurrent_case(World& world) {
  constexpr int kLanes = 3;
  constexpr int kRounds = 40;
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int l = 0; l < kLanes; ++l) {
    lanes.push_back(std::make_unique<Lane>(fmt::format("lane{}", l)));
    comms.push_back(world.make_comm(everyone(world), fmt::format("comm{}", l)));
  }
  std::vector<std::vector<float>> data;
  abort_on_error(world, [&] {
    for (int i = 0; i < kLanes * kRounds; ++i) {
      data.emplace_back(static_cast<std::size_t>(1 + i * 331 % 9000),
                        static_cast<float>(i + world.rank()));
    }
    for (int step = 0; step < kLanes; ++step) {
      const int l = (step + world.rank()) % kLanes;
      for (int round = 0; round < kRounds; ++round) {
        comms[static_cast<std::size_t>(l)]->all_reduce(
            *lanes[static_cast<std::size_t>(l)]->stream,
            view(data[static_cast<std::size_t>(l * kRounds + round)]), ReduceOp::kSum);
      }
    }
    for (const auto& lane : lanes) lane->stream->sync();
    const int n = world.size();
    for (int i = 0; i < kLanes * kRounds; ++i) {
      const auto total = static_cast<float>(n * i + n * (n - 1) / 2);
      for (const float x : data[static_cast<std::size_t>(i)]) expect(x == total, "the lane's sum");
    }
  });
  return 0;
}

// Data goes once around a ring; the two ends of a rank are lanes of their own, so no send can keep
// a rank from its receive, however little a backend buffers.
std::uint64_t ring_case(World& world) {
  const int n = world.size();
  const int me = world.rank();
  const int last = (me + n - 1) % n;
  Lane sends("send");
  Lane recvs("recv");
  std::vector<std::unique_ptr<Comm>> links;  // links[r]: from rank r to the next
  for (int r = 0; r < n; ++r) links.push_back(world.make_comm(everyone(world), "link"));
  abort_on_error(world, [&] {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000000}}) {
      std::vector<float> mine(count, static_cast<float>(me));
      std::vector<float> got(count, -1.0F);
      links[static_cast<std::size_t>(me)]->send(*sends.stream, view(mine), (me + 1) % n);
      links[static_cast<std::size_t>(last)]->recv(*recvs.stream, view(got), last);
      sends.stream->sync();
      recvs.stream->sync();
      const auto from_last = [&](float x) { return x == static_cast<float>(last); };
      expect(std::all_of(got.begin(), got.end(), from_last), "the neighbour's data");
    }
  });
  return 0;
}

// Two ranks that both send first and receive afterwards would hang where nothing is buffered; the
// order that is right everywhere is one rank's send against the other's receive.
std::uint64_t pair_case(World& world) {
  Lane lane;
  const auto comm = world.make_comm(everyone(world), "pair");
  std::vector<float> mine(200000, static_cast<float>(world.rank()));
  std::vector<float> got(mine.size(), -1.0F);
  abort_on_error(world, [&] {
    if (world.rank() > 1) return;
    const int peer = 1 - world.rank();
    for (int round = 0; round < 20; ++round) {
      if (world.rank() == 0) comm->send(*lane.stream, view(mine), peer);
      comm->recv(*lane.stream, view(got), peer);
      if (world.rank() == 1) comm->send(*lane.stream, view(mine), peer);
    }
    lane.stream->sync();
    expect(got.front() == static_cast<float>(peer) && got.back() == got.front(), "peer's data");
  });
  return 0;
}

// Many lanes of a rank wait for long, and what they wait for comes in another order than they began
// to wait in; whichever of them watches for the others must not leave one behind.
std::uint64_t long_wait_case(World& world) {
  constexpr std::size_t kLanes = 4;
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (std::size_t l = 0; l < kLanes; ++l) {
    lanes.push_back(std::make_unique<Lane>(fmt::format("lane{}", l)));
    comms.push_back(world.make_comm(everyone(world), fmt::format("comm{}", l)));
  }
  std::vector<std::vector<float>> data(kLanes, std::vector<float>(10));
  abort_on_error(world, [&] {
    for (const std::size_t first : {0, 1, 3}) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const std::size_t l = (first + i) % kLanes;
        if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        comms[l]->all_gather(*lanes[l]->stream, view(data[l]).slice(world.rank(), 1),
                             view(data[l]).slice(0, world.size()));
        if (world.rank() == 0) lanes[l]->stream->sync();
      }
      for (const auto& lane : lanes) lane->stream->sync();
    }
  });
  return 0;
}

std::uint64_t mismatch_case(World& world) {
  const auto comm = world.make_comm(everyone(world), "mismatch");
  std::vector<float> data(16);
  for (const std::size_t sent : {std::size_t{4}, std::size_t{12}}) {
    Lane lane;
    bool complained = false;
    if (world.rank() == 0) {
      comm->send(*lane.stream, view(data).slice(0, static_cast<std::int64_t>(sent)), 1);
      lane.stream->sync();
    } else if (world.rank() == 1) {
      comm->recv(*lane.stream, view(data).slice(0, 8), 0);
      try {
        lane.stream->sync();
      } catch (const Error& error) {
        complained = error.code() == ExitCode::kComm;
      }
      expect(complained, "an Error(kComm) for a message of another size");
    }
    world.barrier();
  }
  return 0;
}

}  // namespace

std::vector<RankCase> rank_cases() {
  return {{"world calls", 1, world_case},
          {"groups", 1, groups_case},
          {"all_to_all", 1, all_to_all_case},
          {"reductions", 1, reduction_case},
          {"concurrent communicators", 1, concurrent_case},
          {"send and recv around a ring", 2, ring_case},
          {"send and recv of a pair", 2, pair_case},
          {"lanes that wait long", 2, long_wait_case},
          {"sizes that disagree", 2, mismatch_case}};
}

}  // namespace tandem::ranks
