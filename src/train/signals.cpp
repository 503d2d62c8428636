#include "tandem/train/signals.h"

#include <csignal>

namespace tandem {
namespace {

// A handler can reach nothing but static storage; these two flags are the only such state.
volatile std::sig_atomic_t save_flag = 0;
volatile std::sig_atomic_t terminate_flag = 0;

void on_signal(int signal) {
  if (signal == SIGTERM)
    terminate_flag = 1;
  else
    save_flag = 1;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() {
  return save_flag != 0 || terminate_flag != 0;
}
bool terminate_requested() {
  return terminate_flag != 0;
}

}  // namespace tandem
