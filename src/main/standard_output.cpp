#include "standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tandem/base/error.h"

namespace tandem {

bool open_standard_streams() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    if (descriptor == STDOUT_FILENO) {
      std::fprintf(stderr, "error: standard output is closed; send it to a file or to /dev/null\n");
      return false;
    }
    // The lowest free number, so it is this one.
    if (::open("/dev/null", O_RDWR) != descriptor) return false;
  }
  return true;
}

int with_output_written(int code) {
  if (::ftrylockfile(stdout) != 0) {  // by a thread of the log, in a write that may never end
    if (code == 0) std::fprintf(stderr, "error: standard output is not read: some of it is lost\n");
    std::_Exit(code == 0 ? static_cast<int>(ExitCode::kBadInput) : code);  // exit() would write too
  }
  ::funlockfile(stdout);
  std::cout.flush();
  const bool failed_before = std::ferror(stdout) != 0;  // its reason is forgotten
  errno = 0;
  const bool failed_now = std::fflush(stdout) != 0;
  if ((!failed_before && !failed_now) || code != 0) return code;
  std::fprintf(
      stderr,
      "error: standard output could not be written%s%s: some of it is lost; check the disk "
      "or what it is piped to\n",
      failed_now ? ": " : "", failed_now ? std::strerror(errno) : "");
  return static_cast<int>(ExitCode::kBadInput);
}

}  // namespace tandem
