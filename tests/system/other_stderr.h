// Standard error as something else, while the object lives.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace tandem {

class OtherStderr {
 public:
  explicit OtherStderr(int descriptor) : saved_(dup(STDERR_FILENO)) {
    dup2(descriptor, STDERR_FILENO);
  }
  ~OtherStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }
  OtherStderr(const OtherStderr&) = delete;
  OtherStderr& operator=(const OtherStderr&) = delete;

 private:
  int saved_;
};

// A pipe that is full and that nobody reads; it stays open.
inline int full_pipe() {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const std::string page(static_cast<std::size_t>(fcntl(ends[1], F_SETPIPE_SZ, 4096)), ' ');
  return write(ends[1], page.data(), page.size()) > 0 ? ends[1] : -1;
}

}  // namespace tandem
