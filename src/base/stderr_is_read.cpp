#include "tandem/base/stderr_is_read.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace tandem {

bool stderr_is_read() {
  constexpr int kPatienceMs = 1000;
  pollfd stream{STDERR_FILENO, POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&stream, 1, kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;  // one that is closed fails at once
}

}  // namespace tandem
