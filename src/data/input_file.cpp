#include "input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// Where a list was meant.
constexpr const char* kOneName = "; for several files give a list, as in [\"a\",\"b\"]";

}  // namespace

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      // O_NONBLOCK: opening a FIFO must not wait for a writer before it can be refused below.
      fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) {
    throw_error(ExitCode::kBadInput, "cannot open {}: {}{}", path_, std::strerror(errno),
                path_.find(',') == std::string::npos ? "" : kOneName);
  }
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    if (known && S_ISDIR(info.st_mode))
      throw_error(ExitCode::kBadInput, "{} is a folder; name files, as in [\"a\",\"b\"]", path_);
    throw_error(ExitCode::kBadInput, "{} is not a regular file", path_);
  }
  size_ = info.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(std::int64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done,
                                offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw_error(ExitCode::kBadInput, "cannot read {} at byte {}: {}", path_,
                  offset + static_cast<std::int64_t>(done), std::strerror(errno));
    }
    if (got == 0) {
      throw_error(ExitCode::kBadInput,
                  "{} ends at byte {}, expected {} bytes from byte {}; was it changed while open?",
                  path_, offset + static_cast<std::int64_t>(done), out.size(), offset);
    }
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace tandem
