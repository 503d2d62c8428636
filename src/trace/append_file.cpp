#include "append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/parent_folder.h"

namespace tandem {

AppendFile::AppendFile(const std::string& path, Mode mode) : path_(path) {
  make_parent_folder(path);
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (mode == Mode::kNew ? O_EXCL : 0);
  file_ = ::open(path.c_str(), flags, 0644);
  if (file_ < 0) {
    throw_error(ExitCode::kBadInput,
                "cannot open {} for writing: {}; give a path that may be written", path,
                std::strerror(errno));
  }
}

AppendFile::~AppendFile() {
  ::close(file_);
}

void AppendFile::append(std::string_view record) {
  while (!record.empty()) {
    const ssize_t written = ::write(file_, record.data(), record.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_error(ExitCode::kBadInput,
                  "cannot write to {}: {}; check the space there, or give another path", path_,
                  std::strerror(errno));
    }
    record.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool AppendFile::ends_within_a_line() const {
  struct stat info {};
  if (::fstat(file_, &info) != 0 || info.st_size == 0) return false;
  char last = '\n';
  return ::pread(file_, &last, 1, info.st_size - 1) == 1 && last != '\n';
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tandem
