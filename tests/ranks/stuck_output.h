// A standard output that nobody reads, and a thread that is stuck in writing to it, as a log's.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace tandem::ranks {

// For the rest of the process. Returns when the thread holds the lock of stdout for good.
inline void leave_output_unread() {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) std::abort();
  std::thread([] {
    const std::string more_than_fits(1 << 22, ' ');
    std::fwrite(more_than_fits.data(), 1, more_than_fits.size(), stdout);
  }).detach();
  while (ftrylockfile(stdout) == 0) {
    funlockfile(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tandem::ranks
