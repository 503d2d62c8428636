#include "tandem/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "tandem/base/error.h"
#include "tandem/base/parent_folder.h"

namespace tandem {
namespace fs = std::filesystem;
namespace {

// The descriptor of standard output or error if that is the file, else -1.
int standard_stream(const struct stat& file) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open {};
    if (::fstat(stream, &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino)
      return stream;
  }
  return -1;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  struct stat older {};
  const bool there = ::stat(path_.c_str(), &older) == 0;  // if it fails, opening tells why
  if (there && S_ISDIR(older.st_mode))
    throw_error(ExitCode::kBadInput, "{} is a folder; choose another name", path_);
  const int stream = there ? standard_stream(older) : -1;
  if (stream >= 0) std::fflush(stdout);  // what was printed before comes before
  if (stream >= 0 || (there && !S_ISREG(older.st_mode))) {
    unfinished_ = target_;
    file_.reset(stream >= 0 ? ::fdopen(::fcntl(stream, F_DUPFD_CLOEXEC, 0), "w")
                            : std::fopen(target_.c_str(), "we"));
    if (!file_) fail(errno);
    return;
  }
  if (there) {
    std::error_code error;
    target_ = fs::canonical(path_, error).string();
    if (error) fail(error.value());
  }
  if (!there) make_parent_folder(path_);
  unfinished_ = fmt::format("{}.tmp-{:08x}", target_, std::random_device{}());
  file_.reset(std::fopen(unfinished_.c_str(), "wxe"));  // mkstemp would not heed the umask
  if (!file_) fail(errno);
  if (there) ::fchmod(::fileno(file_.get()), older.st_mode & 0777);
}

AtomicFile::~AtomicFile() {
  file_.reset();
  if (!unfinished_.empty() && unfinished_ != target_) ::unlink(unfinished_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail(errno);
}

void AtomicFile::close() {
  if (std::fclose(file_.release()) != 0) fail(errno);
}

void AtomicFile::commit() {
  if (file_) close();
  if (unfinished_ != target_ && std::rename(unfinished_.c_str(), target_.c_str()) != 0) fail(errno);
  unfinished_.clear();
}

void AtomicFile::fail(int error) const {
  throw_error(ExitCode::kBadInput, "{} cannot be written: {}; check the folder and the space",
              path_, std::strerror(error));
}

void require_writable(const std::string& path) {
  struct stat there {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) return;
  const AtomicFile attempt(path);
}

void replace_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace tandem
