// A guard ends its process, so each case is a process of its own.
#include "tandem/train/job_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <thread>

#include "other_stderr.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

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

constexpr JobGuard::Limits kShortStart{.start = 1s, .end = 1000s};
constexpr JobGuard::Limits kShortEnd{.start = 1000s, .end = 1s};

TEST_CASE("a start that never ends is ended") {
  CHECK(exit_code([] {
          const JobGuard guard(kShortStart);
          std::this_thread::sleep_for(30s);
        }) == 5);
}

TEST_CASE("a start that never ends is ended where nobody reads standard error") {
  CHECK(exit_code([] {
          alarm(20);
          dup2(full_pipe(), STDERR_FILENO);
          const JobGuard guard(kShortStart);
          std::this_thread::sleep_for(30s);
        }) == 5);
}

TEST_CASE("a job that ends during the last words has ended") {
  CHECK(exit_code([] {
          const JobGuard guard(kShortStart);
          std::this_thread::sleep_for(1500ms);
        }) == 0);
}

TEST_CASE("work that waits for no other rank does not count") {
  CHECK(exit_code([] {
          JobGuard guard(kShortStart);
          guard.own_work(true);
          std::this_thread::sleep_for(2500ms);
          guard.own_work(false);
        }) == 0);
  CHECK(exit_code([] {
          JobGuard guard(kShortStart);
          guard.own_work(true);
          guard.own_work(false);
          std::this_thread::sleep_for(30s);
        }) == 5);
}

TEST_CASE("while a watchdog watches a guard ends nothing") {
  CHECK(exit_code([] {
          JobGuard guard({.start = 1s, .end = 1s});
          guard.watched(true);
          std::this_thread::sleep_for(2500ms);
        }) == 0);
  CHECK(exit_code([] {  // of two ranks one is at its end
          JobGuard guard({.start = 1s, .end = 1s});
          guard.watched(true);
          guard.watched(true);
          guard.watched(false);
          std::this_thread::sleep_for(2500ms);
        }) == 0);
  CHECK(exit_code([] { const JobGuard guard({.start = 1000s, .end = 1000s}); }) == 0);
}

TEST_CASE("an end that never comes is ended") {
  CHECK(exit_code([] {
          JobGuard guard(kShortEnd);
          guard.watched(true);
          guard.watched(false);
          std::this_thread::sleep_for(30s);
        }) == 5);
  CHECK(exit_code([] {
          JobGuard guard(kShortStart);
          guard.watched(true);
          guard.watched(false);
          std::this_thread::sleep_for(2500ms);
        }) == 0);
  CHECK(exit_code([] {  // the time of starting does not count for the end, however short the run
          JobGuard guard(kShortEnd);
          std::this_thread::sleep_for(1500ms);
          guard.watched(true);
          guard.watched(false);
          std::this_thread::sleep_for(500ms);
        }) == 0);
}

}  // namespace
}  // namespace tandem
