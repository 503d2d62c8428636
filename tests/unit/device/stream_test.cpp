#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/device/cpu_stream.h"
#include "tandem/device/device.h"

using namespace tandem;
using namespace std::chrono_literals;

namespace {

// Holds a stream back until opened, so the host surely runs ahead of it.
class Gate {
 public:
  void close(Stream& stream) {
    stream.call([this] {
      while (!open_.load()) std::this_thread::sleep_for(100us);
    });
  }
  void open() { open_.store(true); }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace

TEST_CASE("a stream runs its work in order and off the host thread") {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("s", 0);
  Gate gate;
  gate.close(*stream);
  std::vector<int> seen;  // plain: only the FIFO and sync order its accesses
  for (int i = 0; i < 1000; ++i) stream->call([&seen, i] { seen.push_back(i); });
  CHECK(stream->pending() == 1001);
  gate.open();
  stream->sync();
  CHECK(stream->pending() == 0);
  REQUIRE(seen.size() == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(seen[static_cast<std::size_t>(i)] == i);
  CHECK(stream->name() == "s");
}

TEST_CASE("a delay holds up its own stream only") {
  constexpr double kDelay = 200e3;
  const auto device = make_cpu_device({});
  const auto slow = device->make_stream("slow", 0);
  const auto fast = device->make_stream("fast", 0);
  const auto begin = device->make_event(), end = device->make_event(), other = device->make_event();
  slow->record(*begin);
  device->delay(*slow, kDelay);
  slow->record(*end);
  fast->record(*other);
  slow->sync();
  fast->sync();
  CHECK(end->reached_us() - begin->reached_us() >= kDelay);
  CHECK(other->reached_us() < end->reached_us());
}

TEST_CASE("an event orders the work of two streams") {
  const auto device = make_cpu_device({});
  const auto first = device->make_stream("first", 0);
  const auto second = device->make_stream("second", 0);
  const auto event = device->make_event();
  Gate gate;
  int value = 0;
  int seen = -1;
  gate.close(*first);
  first->call([&] { value = 7; });
  first->record(*event);
  CHECK_FALSE(event->reached());
  CHECK(event->reached_us() == -1);
  second->wait(*event);
  second->call([&] { seen = value; });
  gate.open();
  second->sync();
  CHECK(seen == 7);
  CHECK(event->reached());
  CHECK(event->reached_us() > 0);
  CHECK(event->reached_us() <= device->now_us());
}

TEST_CASE("wait means the record that was latest when wait was called") {
  const auto device = make_cpu_device({});
  const auto compute = device->make_stream("compute", 0);
  const auto ep = device->make_stream("ep", 0);
  const auto a = device->make_event();
  const auto b = device->make_event();

  SECTION("an event pair recorded again every round does not deadlock") {
    Gate gate;
    gate.close(*compute);
    int x = 0;  // plain on purpose
    for (int i = 0; i < 200; ++i) {
      compute->call([&] { ++x; });
      compute->record(*a);
      ep->wait(*a);
      ep->call([&] { ++x; });
      ep->record(*b);
      compute->wait(*b);
    }
    gate.open();
    compute->sync();
    CHECK(x == 400);
  }
  SECTION("a later record does not hold up an earlier wait") {
    Gate gate;
    compute->record(*a);
    ep->wait(*a);
    gate.close(*compute);
    compute->record(*a);
    ep->sync();  // returns although the second record is not reached
    CHECK_FALSE(a->reached());
    gate.open();
    compute->sync();
    CHECK(a->reached());
  }
  SECTION("a record on another stream does not let an earlier wait pass") {
    Gate gate;
    int value = 0;
    int seen = -1;
    gate.close(*compute);
    compute->call([&] { value = 1; });
    compute->record(*a);
    const auto third = device->make_stream("third", 0);
    third->wait(*a);
    third->call([&] { seen = value; });
    ep->record(*a);
    ep->sync();
    CHECK(third->pending() > 0);
    gate.open();
    third->sync();
    CHECK(seen == 1);
  }
}

TEST_CASE("waiting on an event that was never recorded does nothing") {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("s", 0);
  const auto event = device->make_event();
  stream->wait(*event);
  stream->sync();
  device->host_wait(*event);
  CHECK(event->reached());
  CHECK(event->reached_us() == -1);
}

TEST_CASE("an error skips later work and travels through events to the host") {
  const auto device = make_cpu_device({});
  const auto first = device->make_stream("first", 0);
  const auto second = device->make_stream("second", 0);
  const auto bystander = device->make_stream("bystander", 0);
  const auto event = device->make_event();
  std::atomic<int> ran{0};
  first->call([] { throw_error(ExitCode::kTraining, "layer 3 gave nan"); });
  first->call([&] { ++ran; });
  first->record(*event);
  second->wait(*event);
  second->call([&] { ++ran; });
  bystander->call([] {});
  CHECK_THROWS_WITH(device->host_wait(*event), "layer 3 gave nan");
  CHECK_THROWS_WITH(second->sync(), "layer 3 gave nan");
  CHECK_THROWS_WITH(first->sync(), "layer 3 gave nan");
  CHECK_THROWS_AS(first->sync(), Error);  // it stays
  CHECK_NOTHROW(bystander->sync());
  CHECK(ran == 0);
}

TEST_CASE("a stream finishes its work before it goes") {
  const auto device = make_cpu_device({});
  int done = 0;
  {
    const auto stream = device->make_stream("s", 0);
    for (int i = 0; i < 50; ++i) stream->call([&] { ++done; });
    stream->call([] { throw std::runtime_error("nobody syncs"); });
  }
  CHECK(done == 50);
}

TEST_CASE("sync from a stream's own work is refused instead of hanging") {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("s", 0);
  stream->call([&] { stream->sync(); });
  CHECK_THROWS_AS(stream->sync(), Error);
}

TEST_CASE("copy and fill happen in stream order") {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("s", 0);
  const Buffer a = device->alloc(256, "a");
  const Buffer b = device->alloc(256, "b");
  device->fill(*stream, a.data(), 0x5a, 256);
  device->copy(*stream, b.data(), a.data(), 200);
  device->fill(*stream, a.data(), 0, 256);
  device->copy(*stream, nullptr, nullptr, 0);
  stream->sync();
  const auto* bytes = static_cast<const unsigned char*>(b.data());
  CHECK(bytes[0] == 0x5a);
  CHECK(bytes[199] == 0x5a);
  CHECK(static_cast<const unsigned char*>(a.data())[255] == 0);
}

TEST_CASE("memory is aligned, counted and limited") {
  const auto device = make_cpu_device({.threads = 1, .memory_limit = 1000});
  CHECK(device->alloc(0, "nothing").data() == nullptr);
  {
    Buffer a = device->alloc(600, "a");
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 64 == 0);
    CHECK(device->memory().used == 600);
    try {
      (void)device->alloc(401, "expert input of layer 2");
      FAIL("the limit was ignored");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kMemory);
      for (const char* part : {"expert input of layer 2", "401", "600", "1000"}) {
        CHECK_THAT(error.what(), Catch::Contains(part));
      }
    }
    CHECK_THROWS_AS(device->alloc(~std::size_t{0}, "all"), Error);
    Buffer b = std::move(a);
    CHECK(device->alloc(400, "fits").bytes() == 400);
    CHECK(device->memory().peak == 1000);
  }
  CHECK(device->memory().used == 0);
}
