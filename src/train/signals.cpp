#include "tandem/train/signals.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace tandem {
namespace {

// A handler can reach nothing but static storage; these two flags are the only such state. Atomic,
// because other threads read them; without a lock, because a handler may take none.
std::atomic<bool> save_flag{false};
std::atomic<bool> terminate_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  (signal == SIGTERM || signal == SIGINT ? terminate_flag : save_flag).store(true);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGTERM, SIGPIPE}) sigaction(signal, &action, nullptr);
  action.sa_flags |= SA_RESETHAND;  // a second Ctrl-C ends at once
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() {
  return save_flag.load() || terminate_flag.load();
}
bool terminate_requested() {
  return terminate_flag.load();
}

}  // namespace tandem
