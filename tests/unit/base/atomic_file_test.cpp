#include "tandem/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <filesystem>

#include "tandem/base/error.h"
#include "temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

std::ptrdiff_t entries(const TempFolder& folder) {
  return std::distance(fs::directory_iterator(folder / ""), fs::directory_iterator());
}

TEST_CASE("a file takes the place of an older one when it is committed, not before") {
  const TempFolder folder;
  const std::string path = folder / "a";
  replace_file(path, "old");
  {
    AtomicFile file(path);
    file.write("ne");
    file.write("w");
    file.close();
    CHECK(read_bytes(path) == "old");
    file.commit();
    CHECK(read_bytes(path) == "new");
  }
  CHECK(read_bytes(path) == "new");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a file that is not committed leaves the older one, and nothing of its own") {
  const TempFolder folder;
  const std::string path = folder / "a";
  AtomicFile(path).write("new");
  CHECK(entries(folder) == 0);
  replace_file(path, "old");
  AtomicFile(path).write("new");
  CHECK(read_bytes(path) == "old");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a file that standard output goes to is written on, not replaced") {
  const TempFolder folder;
  const std::string path = folder / "log";
  write_bytes(path, "before,");
  std::fflush(stdout);  // of Catch, or the child would print it as well
  const pid_t child = ::fork();
  if (child == 0) {
    const int log = ::open(path.c_str(), O_WRONLY | O_APPEND);
    if (::dup2(log, STDOUT_FILENO) < 0) ::_exit(1);
    std::fputs("printed,", stdout);
    replace_file("/dev/stdout", "the file,");
    std::fputs("after", stdout);
    ::_exit(std::fflush(stdout) == 0 ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(read_bytes(path) == "before,printed,the file,after");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a file has the permissions of the one it replaces") {
  const TempFolder folder;
  const std::string path = folder / "a";
  replace_file(path, "old");
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  replace_file(path, "new");
  CHECK((fs::status(path).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("trying a path leaves nothing and changes nothing") {
  const TempFolder folder;
  require_writable(folder / "a");
  CHECK(entries(folder) == 0);
  replace_file(folder / "a", "old");
  require_writable(folder / "a");
  CHECK(read_bytes(folder / "a") == "old");
  CHECK_THROWS_AS(require_writable(folder / "a/a"), Error);
  require_writable("/dev/full");
}

TEST_CASE("of two writers of a path each commits its own, whole") {
  const TempFolder folder;
  const std::string path = folder / "a";
  AtomicFile first(path), second(path);
  first.write("first");
  second.write("sec");
  first.commit();
  CHECK(read_bytes(path) == "first");
  second.write("ond");
  second.commit();
  CHECK(read_bytes(path) == "second");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a process that is killed leaves the older file, and one of its own beside it") {
  const TempFolder folder;
  const std::string path = folder / "a";
  replace_file(path, "old");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("half");
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(read_bytes(path) == "old");
  std::string left;
  for (const auto& entry : fs::directory_iterator(folder / ""))
    if (entry.path() != path) left = entry.path();
  CHECK_THAT(left, Catch::StartsWith(path + ".tmp-"));
  replace_file(path, "new");
  CHECK(read_bytes(path) == "new");
  CHECK(entries(folder) == 2);
}

TEST_CASE("a new file may be read and written by whom the umask lets") {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  replace_file(folder / "a", "new");
  ::umask(before);
  struct stat info {};
  REQUIRE(::stat((folder / "a").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0640U);
}

TEST_CASE("the file that a link names is replaced, the link stays") {
  const TempFolder folder;
  const std::string link = folder / "link", path = folder / "a";
  replace_file(path, "old");
  fs::create_symlink("a", link);
  replace_file(link, "new");
  CHECK(read_bytes(path) == "new");
  CHECK(fs::is_symlink(link));
}

TEST_CASE("a link to a file that is not there is replaced itself") {
  const TempFolder folder;
  const std::string link = folder / "link";
  fs::create_symlink("a", link);
  replace_file(link, "new");
  CHECK(read_bytes(link) == "new");
  CHECK(fs::is_regular_file(fs::symlink_status(link)));
  CHECK(entries(folder) == 1);
}

TEST_CASE("folders that are not there are made") {
  const TempFolder folder;
  replace_file(folder / "b/c/a", "new");
  CHECK(read_bytes(folder / "b/c/a") == "new");
}

TEST_CASE("what cannot be written is named with the reason and a way out") {
  const TempFolder folder;
  const auto refused = [](const std::string& path, const std::string& why) {
    INFO(path);
    CHECK_THROWS_WITH(replace_file(path, "new"), Contains(path) && Contains(why));
  };
  refused("/proc/no/a", "No such file or directory; check the folder and the space");
  refused(folder / "", "is a folder; choose another name");
  refused("/dev/full", "No space left on device; check the folder and the space");
  replace_file("/dev/null", "a device is written as it is");
  CHECK(fs::is_character_file("/dev/null"));
  refused(folder / std::string(250, 'a'), "File name too long");
  CHECK(entries(folder) == 0);
}

}  // namespace
}  // namespace tandem
