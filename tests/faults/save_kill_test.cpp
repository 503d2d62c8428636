// A process that dies at any stage of a save leaves a checkpoint that loads, and the run that
// continues from it ends as if nothing had happened.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "../system/training.h"

namespace tandem {
namespace {

// Two ranks, six steps, a checkpoint after every second one.
Overrides six_steps(const std::string& dir) {
  return {"parallel.pp=2", "train.steps=6", "checkpoint.every=2", "checkpoint.dir=" + dir};
}

// Trains in a child process that kills itself when `victim` rank reaches `stage` of the second
// save.
void train_until_killed(const std::string& dir, const char* stage) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::atomic<int> reached{0};
    const int before =
        std::strcmp(stage, "folder prepared") == 0 || std::strcmp(stage, "shard written") == 0
            ? 2  // both ranks come by, in the first save
            : 1;
    try {
      (void)train(2, six_steps(dir), [&](const char* at) {
        if (std::strcmp(at, stage) == 0 && reached.fetch_add(1) == before) ::raise(SIGKILL);
      });
    } catch (const std::exception&) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("a run killed at any stage of a save continues as if it had not been") {
  const TempFolder folder;
  const Training straight = train(2, six_steps(folder / "straight"));
  const ModelState expected = read_state(step_folder(folder / "straight", 6), {});
  for (const char* stage :
       {"folder prepared", "shard written", "manifest written", "renamed", "old ones removed"}) {
    INFO(stage);
    const std::string dir = folder / stage;
    train_until_killed(dir, stage);
    const auto found = find_checkpoint(dir);
    REQUIRE(found);
    CHECK((found->info.step == 2 || found->info.step == 4));
    const Training resumed = train(2, six_steps(dir));
    CHECK(resumed.steps.front().step == found->info.step + 1);
    CHECK(resumed.result.last_loss == straight.result.last_loss);
    CHECK(read_state(step_folder(dir, 6), {}) == expected);
  }
}

// Six steps of at most one second each, where one rank hangs in the first save.
Training train_with_slow_save(const std::string& dir, std::chrono::seconds time) {
  std::atomic<bool> first{true};
  const auto hang = [&](const char*) {
    if (first.exchange(false)) std::this_thread::sleep_for(time);
  };
  return train(2, six_steps(dir) + Overrides{"train.watchdog_s=1"}, hang);
}

TEST_CASE("a save may take longer than a step") {
  const TempFolder folder;
  CHECK(train_with_slow_save(folder / "c", std::chrono::seconds(2)).result.steps == 6);
  CHECK(find_checkpoint(folder / "c")->info.step == 6);
}

TEST_CASE("a rank that hangs in a save does not hold the others for ever") {
  const TempFolder folder;
  try {
    (void)train_with_slow_save(folder / "c", std::chrono::seconds(6));
    FAIL("the save went on");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kComm);
    CHECK_THAT(error.what(), Catch::Contains("has not moved for 4 s (in a checkpoint"));
  }
}

}  // namespace
}  // namespace tandem
