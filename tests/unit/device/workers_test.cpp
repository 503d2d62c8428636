#include "tandem/device/workers.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/device/cpu_stream.h"

using namespace tandem;

namespace {

using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pieces pieces_of(Workers& workers, std::int64_t count, std::int64_t grain) {
  Pieces pieces;
  std::mutex mutex;
  workers.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    pieces.emplace_back(begin, end);
  });
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

TEST_CASE("parallel_for covers every index once, split the same for any number of threads") {
  Workers one(1);
  Workers two(2);
  Workers five(5);
  CHECK(five.threads() == 5);
  for (const std::int64_t count : {0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 1000, 4097, 1000003}) {
    for (const std::int64_t grain : {0, 1, 2, 16, 100, 5000}) {
      const Pieces pieces = pieces_of(one, count, grain);
      std::int64_t at = 0;
      for (const auto& [begin, end] : pieces) {
        REQUIRE(begin == at);
        REQUIRE(end > begin);
        if (pieces.size() > 1) REQUIRE(end - begin >= grain);
        at = end;
      }
      REQUIRE(at == count);
      REQUIRE(pieces_of(two, count, grain) == pieces);
      REQUIRE(pieces_of(five, count, grain) == pieces);
    }
  }
}

TEST_CASE("parallel_for sees the caller's writes and the caller sees the pieces'") {
  Workers workers(3);
  std::vector<int> data(10000, 0);  // plain: the pool itself must order the accesses
  for (int round = 1; round <= 300; ++round) {
    data[0] += 0;
    workers.parallel_for(10000, 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++data[static_cast<std::size_t>(i)];
    });
    REQUIRE(std::all_of(data.begin(), data.end(), [&](int x) { return x == round; }));
  }
}

TEST_CASE("the pool is used, wakes up again, and is waited for") {
  Workers workers(2);
  const auto caller = std::this_thread::get_id();
  int helped = 0;
  for (int round = 0; round < 200 && helped < 3; ++round) {
    std::vector<int> by(8, 0);  // plain: 1 by the caller, 2 by the helper
    workers.parallel_for(8, 1, [&](std::int64_t begin, std::int64_t) {
      const bool helper = std::this_thread::get_id() != caller;
      std::this_thread::sleep_for(std::chrono::milliseconds(helper ? 4 : 1));
      by[static_cast<std::size_t>(begin)] = helper ? 2 : 1;
    });
    REQUIRE(std::count(by.begin(), by.end(), 0) == 0);
    if (std::count(by.begin(), by.end(), 2) > 0) ++helped;
  }
  CHECK(helped == 3);
}

TEST_CASE("one thread means the caller's thread") {
  Workers workers(1);
  const auto caller = std::this_thread::get_id();
  workers.parallel_for(
      100, 1, [&](std::int64_t, std::int64_t) { REQUIRE(std::this_thread::get_id() == caller); });
}

TEST_CASE("concurrent and nested callers run inline") {
  Workers workers(2);
  std::atomic<int> sum{0};
  workers.parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
    workers.parallel_for(8, 1, [&](std::int64_t, std::int64_t) { ++sum; });
  });
  CHECK(sum == 64);

  const auto device = make_cpu_device({.threads = 2});
  std::vector<std::unique_ptr<Stream>> streams;
  for (const char* name : {"a", "b", "c"}) streams.push_back(device->make_stream(name, 0));
  sum = 0;
  for (int round = 0; round < 100; ++round) {
    for (const auto& stream : streams) {
      auto& cpu = dynamic_cast<CpuStream&>(*stream);
      stream->call([&sum, &cpu] {
        cpu.workers().parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) {
          sum += static_cast<int>(end - begin);
        });
      });
    }
  }
  for (const auto& stream : streams) stream->sync();
  CHECK(sum == 3000);
}

TEST_CASE("an exception of a piece reaches the caller, the first piece's first") {
  for (const int threads : {1, 3}) {
    Workers workers(threads);
    for (int round = 0; round < 50; ++round) {
      REQUIRE_THROWS_WITH(workers.parallel_for(10, 1,
                                               [&](std::int64_t begin, std::int64_t) {
                                                 if (begin >= 4)
                                                   throw std::runtime_error(std::to_string(begin));
                                               }),
                          "4");
    }
    int sum = 0;
    std::mutex mutex;
    workers.parallel_for(10, 1, [&](std::int64_t, std::int64_t) {
      const std::lock_guard lock(mutex);
      ++sum;
    });
    CHECK(sum == 10);
  }
}
