// A guard ends its process, so each case is a process of its own.
#include "tandem/train/start_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <thread>

namespace tandem {
namespace {

// Exit code of a process that runs body, and 0 after it.
int exit_code(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a start that never ends is ended") {
  CHECK(exit_code([] {
          const StartGuard guard(1);
          std::this_thread::sleep_for(std::chrono::seconds(30));
        }) == 5);
}

TEST_CASE("work that waits for no other rank does not count") {
  CHECK(exit_code([] {
          StartGuard guard(1);
          guard.own_work(true);
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          guard.own_work(false);
        }) == 0);
  CHECK(exit_code([] {
          StartGuard guard(1);
          guard.own_work(true);
          guard.own_work(false);
          std::this_thread::sleep_for(std::chrono::seconds(30));
        }) == 5);
}

TEST_CASE("a guard that was dismissed ends nothing") {
  CHECK(exit_code([] {
          StartGuard guard(1);
          guard.dismiss();
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        }) == 0);
  CHECK(exit_code([] { const StartGuard guard(1000); }) == 0);
}

}  // namespace
}  // namespace tandem
