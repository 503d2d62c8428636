// A checkpoint directory belongs to one run at a time, and nothing a dead run left stands in the
// way.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>

#include "pieces.h"
#include "tandem/ckpt/claim.h"

using namespace tandem;
using Catch::Contains;

namespace {

// A child process that claims `dir`, says so, and holds it until it is killed.
pid_t holder_of(const std::string& dir) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointClaim claim(dir);
    if (::write(ends[1], "+", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char ready = 0;
  REQUIRE(::read(ends[0], &ready, 1) == 1);
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}

void try_to_save(const std::string& dir) {
  begin_trial(dir);
  write_trial(dir, 0);
  end_trial(dir);
}

}  // namespace

TEST_CASE("one run at a time claims a directory") {
  const TempFolder scratch;
  const std::string dir = scratch / "runs/a";
  {
    const CheckpointClaim claim(dir);
    CHECK(claim.warning().empty());
    CHECK_THROWS_WITH(CheckpointClaim(dir), Contains(dir + " is in use by another run (process " +
                                                     std::to_string(::getpid()) + " on ") &&
                                                Contains("checkpoint.dir"));
    CHECK_NOTHROW(CheckpointClaim(scratch / "runs/b"));
  }
  CHECK_NOTHROW(CheckpointClaim(dir));
}

TEST_CASE("a claim ends with its process, even a killed one") {
  const TempFolder scratch;
  const std::string dir = scratch / "c";
  const pid_t child = holder_of(dir);
  CHECK_THROWS_WITH(CheckpointClaim(dir), Contains("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(std::filesystem::exists(dir + "/.lock"));
  {
    const CheckpointClaim claim(dir);
    CHECK_THROWS_WITH(CheckpointClaim(dir), Contains("process " + std::to_string(::getpid())));
  }
  write_bytes(dir + "/.lock", "left by somebody else");
  CHECK_NOTHROW(CheckpointClaim(dir));
}

TEST_CASE("saves and the search for checkpoints pass the lock by") {
  const TempFolder scratch;
  const std::string dir = scratch / "c";
  const CheckpointClaim claim(dir);
  CHECK(!find_checkpoint(dir).has_value());
  save(dir, 1, 1);
  CHECK(find_checkpoint(dir)->info.step == 1);
  CHECK(entries(dir) == Names{".lock", "step-00000001"});
  CHECK_THROWS_WITH(CheckpointClaim(dir), Contains("in use"));
}

TEST_CASE("a lock that is no file is refused") {
  const TempFolder scratch;
  std::filesystem::create_directories(scratch / "c");
  REQUIRE(::mkfifo((scratch / "c/.lock").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(CheckpointClaim(scratch / "c"), Contains("not a regular file"));
}

TEST_CASE("a directory that can only be read is claimed, and a trial says that it is") {
  const TempFolder scratch;
  const std::string dir = scratch / "c";
  const bool locked_before = GENERATE(false, true);
  save(dir, 1, 1);
  if (locked_before) const CheckpointClaim claim(dir);
  std::filesystem::permissions(scratch / ".", std::filesystem::perms{0755});
  std::filesystem::permissions(dir, std::filesystem::perms{0555});
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(1);
    try {
      const CheckpointClaim claim(dir);
      if (!claim.warning().empty() || find_checkpoint(dir)->info.step != 1) ::_exit(2);
      try_to_save(dir);
    } catch (const Error& error) {
      const std::string what = error.what();
      const bool told = what.find(dir) != std::string::npos &&
                        what.find("Permission denied") != std::string::npos;
      ::_exit(told ? 7 : 8);
    }
    ::_exit(3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a trial leaves nothing behind and takes no notice of an interrupted one") {
  const TempFolder scratch;
  const std::string dir = scratch / "runs/a";
  for (int interrupted = 0; interrupted < 2; ++interrupted) {
    begin_trial(dir);
    write_trial(dir, 0);
    write_trial(dir, 1);
  }
  end_trial(dir);
  CHECK(entries(dir).empty());
  // A rank whose host does not see the folder.
  CHECK_THROWS_WITH(write_trial(dir, 2), Contains("rank-00002: No such file"));
}

TEST_CASE("a trial names what cannot be a directory") {
  const TempFolder scratch;
  write_bytes(scratch / "file", "mine");
  for (const std::string& dir : {scratch / "file", scratch / "file/below",
                                 std::string("/dev/null/x"), std::string("/proc/x")}) {
    INFO(dir);
    CHECK_NOTHROW(CheckpointClaim(dir));
    CHECK_THROWS_WITH(try_to_save(dir), Contains(dir));
  }
  CHECK(read_bytes(scratch / "file") == "mine");
}
