// A rank that does not move is told from one that is at something long.
#include "tandem/train/watchdog.h"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/device/device.h"
#include "other_stderr.h"
#include "training.h"

namespace tandem {
namespace {

constexpr int kTimeoutS = 1;

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Why a watchdog aborts the world while rank 0 runs body; empty: it does not.
std::string reason(const std::function<void(Watchdog&)>& body) {
  std::string why;
  const auto run = [&] {
    run_as_threads(2, [&](World& world) {
      if (world.rank() != 0) return world.barrier();
      const auto device = make_cpu_device({});
      const Timeline timeline(*device);
      Log log(world.rank(), /*quiet=*/true);
      Watchdog watchdog(world, timeline, log, kTimeoutS);
      body(watchdog);
      world.barrier();
    });
  };
  try {
    run();
  } catch (const Error& error) {
    why = error.what();
  }
  return why;
}

using Catch::Contains;

TEST_CASE("nothing moves for longer than the timeout") {
  CHECK_THAT(reason([](Watchdog&) { sleep_s(2.5); }),
             Contains("has not moved for 1 s (train.watchdog_s)"));
}

TEST_CASE("nothing moves, and nobody reads standard error") {
  const OtherStderr unread(full_pipe());
  CHECK_THAT(reason([](Watchdog&) { sleep_s(4.5); }), Contains("has not moved for 1 s"));
}

TEST_CASE("an error after the watchdog's report, and before its abort, is told") {
  const TempFolder folder;
  const std::string path = folder / "stderr";
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  REQUIRE(file >= 0);
  {
    const OtherStderr captured(file);
    CHECK_THROWS(train(1, {"train.watchdog_s=1"}, {}, [&](const StepReport&) {
      while (read_bytes(path).find("has not moved") == std::string::npos) sleep_s(0.02);
      throw_error(ExitCode::kBadInput, "the disk is gone");
    }));
  }
  close(file);
  const std::string said = read_bytes(path);
  CHECK_THAT(said, Contains("error: rank 0: the disk is gone\n"));
  CHECK(said.find("lanes stand") == said.rfind("lanes stand"));
}

TEST_CASE("a rank at work of its own is not found amiss, and after it as before") {
  CHECK(reason([](Watchdog& watchdog) {
          const auto phase = watchdog.own_work();
          sleep_s(4.5);  // longer than patience would last
        }).empty());
  CHECK_THAT(reason([](Watchdog& watchdog) {
               { const auto phase = watchdog.own_work(); }
               sleep_s(2.5);
             }),
             Contains("has not moved for 1 s"));
}

// The whole process, all its threads.
void be_stopped_for(unsigned microseconds) {
  const pid_t waker = fork();
  REQUIRE(waker >= 0);
  if (waker == 0) {
    usleep(microseconds);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  waitpid(waker, nullptr, 0);
}

TEST_CASE("time in which the process is stopped does not count") {
  CHECK(reason([](Watchdog& watchdog) {
          be_stopped_for(2000000);
          sleep_s(0.5);
          CHECK_FALSE(watchdog.has_reported());
        }).empty());
  CHECK(reason([](Watchdog& watchdog) {  // nor does time too short to be told
          sleep_s(0.3);
          be_stopped_for(800000);
          sleep_s(0.3);
          CHECK_FALSE(watchdog.has_reported());
        })
            .empty());
}

TEST_CASE("patience lasts four times as long and says where") {
  CHECK(reason([](Watchdog& watchdog) {
          const auto phase = watchdog.patient("in an evaluation");
          sleep_s(2);
        }).empty());
  CHECK_THAT(reason([](Watchdog& watchdog) {
               const auto phase = watchdog.patient("in an evaluation");
               sleep_s(5.5);
             }),
             Contains("has not moved for 4 s (in an evaluation, 4 x train.watchdog_s)"));
}

}  // namespace
}  // namespace tandem
