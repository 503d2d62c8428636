#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <thread>

#include "tandem/base/log.h"

using namespace tandem;

namespace {

// What `body` writes to a descriptor, read back before the stream is flushed by anyone else.
std::string captured(int descriptor, const std::function<void()>& body) {
  char path[] = "/tmp/tandem_log_XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  std::cout.flush();  // Catch names its filters there; they are not the log's
  const int saved = dup(descriptor);
  dup2(file, descriptor);
  body();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  dup2(saved, descriptor);
  close(saved);
  close(file);
  unlink(path);
  return text.str();
}

}  // namespace

TEST_CASE("rank 0 writes bare lines, other ranks are prefixed, each line at once") {
  CHECK(captured(STDOUT_FILENO, [] { Log(0, false).info("step {}", 3); }) == "step 3\n");
  CHECK(captured(STDOUT_FILENO, [] { Log(3, false).info("{{}} %v {}", 1); }) ==
        "[rank 3] {} %v 1\n");
}

TEST_CASE("warnings and errors go to stderr, and only there") {
  Log log(0, false), third(3, false);
  CHECK(captured(STDERR_FILENO, [&] { log.warn("slow"); }) == "warning: slow\n");
  CHECK(captured(STDERR_FILENO, [&] { third.error("lost"); }) == "[rank 3] error: lost\n");
  CHECK(captured(STDOUT_FILENO, [&] {
          captured(STDERR_FILENO, [&] { log.error("lost"); });
        }).empty());
}

TEST_CASE("quiet drops information, nothing else") {
  Log log(0, true);
  CHECK(captured(STDOUT_FILENO, [&] { log.info("step"); }).empty());
  CHECK(captured(STDERR_FILENO, [&] { log.warn("slow"); }) == "warning: slow\n");
}

TEST_CASE("lines of ranks that are threads stay whole") {
  constexpr int kLines = 500;
  const std::string text = captured(STDOUT_FILENO, [] {
    const auto write = [](int rank) {
      Log log(rank, false);
      for (int i = 0; i < kLines; ++i) log.info("{:>40}", i);
    };
    std::thread one(write, 1), two(write, 2);
    one.join();
    two.join();
  });
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    REQUIRE(line.size() == std::string("[rank 1] ").size() + 40);
  CHECK(count == 2 * kLines);
}

TEST_CASE("colour needs a terminal and no NO_COLOR") {
  unsetenv("NO_COLOR");
  captured(STDOUT_FILENO, [] { CHECK_FALSE(colour_wanted()); });  // a file

  const int controller = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(controller >= 0);
  REQUIRE(grantpt(controller) == 0);
  REQUIRE(unlockpt(controller) == 0);
  const int terminal = open(ptsname(controller), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const int saved = dup(STDOUT_FILENO);
  dup2(terminal, STDOUT_FILENO);
  const bool plain = colour_wanted();
  setenv("NO_COLOR", "1", 1);
  const bool refused = colour_wanted();
  setenv("NO_COLOR", "", 1);
  const bool empty = colour_wanted();
  unsetenv("NO_COLOR");
  dup2(saved, STDOUT_FILENO);
  for (const int descriptor : {saved, terminal, controller}) close(descriptor);
  CHECK(plain);
  CHECK_FALSE(refused);
  CHECK(empty);
}
