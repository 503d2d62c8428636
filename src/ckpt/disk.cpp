#include "disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/ckpt/safetensors.h"

namespace tandem {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw_error(ExitCode::kBadInput, "cannot {} {}: {}", what, path, std::strerror(error));
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

ReadFile::ReadFile(std::string path, Links links)
    : path_(std::move(path)),
      // O_NONBLOCK: opening a FIFO must not wait for a writer before it can be refused below.
      fd_(::open(path_.c_str(),
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0))) {
  if (fd_.get() < 0) fail("open", path_, errno);
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) fail("examine", path_, errno);
  if (!S_ISREG(info.st_mode)) {
    throw_error(ExitCode::kBadInput, "{} is not a regular file", path_);
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

void ReadFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), std::min(out.size(), std::size_t{1} << 30),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    if (got == 0) {
      throw_error(ExitCode::kBadInput, "{} ends at byte {}, expected {} more bytes", path_, offset,
                  out.size());
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::uint32_t ReadFile::crc32c() const {
  std::vector<std::byte> chunk(std::min<std::uint64_t>(kChunkBytes, size_));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < size_; at += chunk.size()) {
    const auto part = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), size_ - at));
    read(at, part);
    crc = tandem::crc32c(part, crc);
  }
  return crc;
}

WriteFile::WriteFile(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (fd_.get() < 0) fail("create", path_, errno);
}

void WriteFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Small enough that the checksum finds the bytes in the cache.
    const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytes));
    const ssize_t put = ::write(fd_.get(), chunk.data(), chunk.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path_, errno);
    const auto written = chunk.first(static_cast<std::size_t>(put));
    crc_ = tandem::crc32c(written, crc_);
    bytes_ += written.size();
    bytes = bytes.subspan(written.size());
  }
}

void WriteFile::sync() {
  if (::fsync(fd_.get()) != 0) fail("fsync", path_, errno);
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail("open folder", path, errno);
  if (::fsync(folder.get()) != 0) fail("fsync folder", path, errno);
}

void make_folders(const std::string& path) {
  if (exists(path)) return;
  const std::string parent = parent_of(path);
  if (parent != path) make_folders(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail("create folder", path, errno);
  sync_folder(parent);
}

void move_folder(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(("rename to " + to).c_str(), from, errno);
}

void remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace tandem
