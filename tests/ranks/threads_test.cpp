#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "rank_cases.h"
#include "stuck_output.h"

using namespace tandem;
using namespace tandem::ranks;

TEST_CASE("every rank case holds for ranks that are threads") {
  for (const RankCase& test : rank_cases()) {
    DYNAMIC_SECTION(test.name) {
      for (int ranks = std::max(1, test.min_ranks); ranks <= 4; ++ranks) {
        INFO(ranks << " ranks");
        CHECK_NOTHROW(run_as_threads(ranks, [&](World& world) { (void)test.body(world); }));
      }
    }
  }
}

TEST_CASE("an abort wakes a blocked receive with the reason") {
  std::atomic<int> woken{0};
  run_as_threads(3, [&](World& world) {
    Lane lane;
    const auto comm = world.make_comm(everyone(world), "p2p");
    std::vector<float> data(10);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort(ExitCode::kTraining, "the loss is not finite");
      return;
    }
    comm->recv(*lane.stream, {data.data(), DType::kF32, 10, 1}, 0);
    try {
      lane.stream->sync();
    } catch (const Error& error) {
      const std::string what = error.what();
      if (error.code() == ExitCode::kComm && what == "rank 0: the loss is not finite") ++woken;
    }
  });
  CHECK(woken == 2);
}

TEST_CASE("an abort wakes a blocked sender and host-side calls") {
  std::atomic<int> woken{0};
  run_as_threads(3, [&](World& world) {
    Lane lane;
    const auto comm = world.make_comm(everyone(world), "p2p");
    std::vector<float> data(10);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort(ExitCode::kComm, "timed out");
      return;
    }
    try {
      if (world.rank() == 2) world.barrier();
      comm->send(*lane.stream, {data.data(), DType::kF32, 10, 1}, 0);
      lane.stream->sync();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kComm) ++woken;
    }
  });
  CHECK(woken == 2);
}

TEST_CASE("an exception of one rank ends the others and is the one that is rethrown") {
  for (const int failing : {0, 2}) {
    CHECK_THROWS_WITH(run_as_threads(3,
                                     [&](World& world) {
                                       Lane lane;
                                       const auto comm = world.make_comm(everyone(world), "dp");
                                       std::vector<float> data(100000);
                                       abort_on_error(world, [&] {
                                         const View view{data.data(), DType::kF32, 100000, 1};
                                         for (int i = 0;; ++i) {
                                           comm->all_reduce(*lane.stream, view, ReduceOp::kSum);
                                           if (i == 5 && world.rank() == failing) {
                                             throw_error(ExitCode::kMemory, "no room on rank {}",
                                                         failing);
                                           }
                                           lane.stream->sync();
                                         }
                                       });
                                     }),
                      fmt::format("no room on rank {}", failing));
  }
}

TEST_CASE("a work item that throws between collectives ends all ranks") {
  CHECK_THROWS_WITH(
      run_as_threads(
          2,
          [](World& world) {
            Lane lane;
            const auto comm = world.make_comm(everyone(world), "dp");
            std::vector<float> data(10);
            abort_on_error(world, [&] {
              if (world.rank() == 1) {
                lane.stream->call([] { throw std::runtime_error("node 7 failed"); });
              }
              comm->all_reduce(*lane.stream, {data.data(), DType::kF32, 10, 1}, ReduceOp::kSum);
              lane.stream->sync();
            });
          }),
      "node 7 failed");
}

TEST_CASE("groups that the ranks do not agree on are refused") {
  CHECK_THROWS_AS(
      run_as_threads(2,
                     [](World& world) {
                       (void)world.make_comm(
                           world.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1}, "ep");
                     }),
      Error);
  CHECK_THROWS_AS(run_as_threads(1,
                                 [](World& world) {
                                   (void)world.make_comm({0, 0}, "ep");
                                 }),
                  Error);
  CHECK_THROWS_AS(run_as_threads(1, [](World& world) { (void)world.make_comm({1}, "ep"); }), Error);
  CHECK_THROWS_AS(run_as_threads(2, [](World& world) { (void)world.make_comm({0}, "ep"); }), Error);
}

TEST_CASE("wrong arguments are refused before anything is sent") {
  run_as_threads(1, [](World& world) {
    Lane lane;
    const auto comm = world.make_comm({0}, "dp");
    std::vector<float> data(8);
    const View half{data.data(), DType::kBF16, 8, 1};
    const auto refused = [&](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code() == ExitCode::kInternal;
      }
      return false;
    };
    expect(refused([&] { comm->all_reduce(*lane.stream, half, ReduceOp::kSum); }), "bf16 sum");
    expect(refused([&] { comm->send(*lane.stream, half, 0); }), "a send to itself");
    expect(refused([&] { comm->recv(*lane.stream, half, 1); }), "a peer outside the group");
    AllToAll plan{{{half, half}}, {{{0, 9}}}, {{{0, 9}}}};
    expect(refused([&] { comm->all_to_all(*lane.stream, plan); }), "rows outside the view");
    lane.stream->sync();
  });
}

TEST_CASE("a rank that no abort reaches ends with the process, also where its output is unread") {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    leave_output_unread();
    run_as_threads(2, [](World& world) {
      if (world.rank() == 0) return world.abort(ExitCode::kTraining, "the loss is not finite");
      std::this_thread::sleep_for(std::chrono::seconds(300));
    });
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 4);
}
