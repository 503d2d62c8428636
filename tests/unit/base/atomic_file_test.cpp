#include "tandem/base/atomic_file.h"

#include <catch2/catch.hpp>

#include <filesystem>

#include "tandem/base/error.h"
#include "temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

std::ptrdiff_t entries(const TempFolder& folder) {
  return std::distance(fs::directory_iterator(folder.file("")), fs::directory_iterator());
}

TEST_CASE("a file takes the place of an older one when it is committed, not before") {
  const TempFolder folder;
  const std::string path = folder.file("a");
  replace_file(path, "old");
  {
    AtomicFile file(path);
    file.write("ne");
    file.write("w");
    file.close();
    CHECK(read_all(path) == "old");
    file.commit();
    CHECK(read_all(path) == "new");
  }
  CHECK(read_all(path) == "new");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a file that is not committed leaves the older one, and nothing of its own") {
  const TempFolder folder;
  const std::string path = folder.file("a");
  AtomicFile(path).write("new");
  CHECK(entries(folder) == 0);
  replace_file(path, "old");
  AtomicFile(path).write("new");
  CHECK(read_all(path) == "old");
  CHECK(entries(folder) == 1);
}

TEST_CASE("what a killed process left is replaced, not followed or appended to") {
  const TempFolder folder;
  const std::string path = folder.file("a"), other = folder.file("other");
  replace_file(other, "precious");
  fs::create_symlink(other, path + ".tmp");
  replace_file(path, "new");
  CHECK(read_all(path) == "new");
  CHECK(read_all(other) == "precious");
}

TEST_CASE("the file that a link names is replaced, the link stays") {
  const TempFolder folder;
  const std::string link = folder.file("link"), path = folder.file("a");
  replace_file(path, "old");
  fs::create_symlink("a", link);
  replace_file(link, "new");
  CHECK(read_all(path) == "new");
  CHECK(fs::is_symlink(link));
}

TEST_CASE("what cannot be written is named with the reason and a way out") {
  const TempFolder folder;
  const auto refused = [](const std::string& path, const std::string& why) {
    INFO(path);
    CHECK_THROWS_WITH(replace_file(path, "new"), Contains(path) && Contains(why));
  };
  refused(folder.file("no/a"), "No such file or directory; check the folder and the space");
  refused(folder.file(""), "is a folder; choose another name");
  refused("/dev/full", "No space left on device; check the folder and the space");
  replace_file("/dev/null", "a device is written as it is");
  CHECK(fs::is_character_file("/dev/null"));
  fs::create_directory(folder.file("a.tmp"));
  refused(folder.file("a"), "File exists");
  CHECK(fs::is_directory(folder.file("a.tmp")));
  CHECK(entries(folder) == 1);
}

}  // namespace
}  // namespace tandem
