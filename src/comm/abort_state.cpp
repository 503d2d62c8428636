#include "abort_state.h"

namespace tandem {

bool AbortState::set(ExitCode code, const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (set_.load()) return false;
  code_ = code;
  try {
    reason_ = reason;
  } catch (...) {  // no memory for the text: the flag matters more
  }
  set_.store(true, std::memory_order_release);
  return true;
}

ExitCode AbortState::code() const {
  const std::lock_guard lock(mutex_);
  return code_;
}

std::string AbortState::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void AbortState::check() const {
  if (is_set()) throw Aborted(reason());
}

}  // namespace tandem
