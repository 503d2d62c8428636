#include "abort_state.h"

namespace tandem {

bool AbortState::set(ExitCode code, const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (set_.load()) return false;
    code_ = code;
    try {
      reason_ = reason;
    } catch (...) {  // no memory for the text: the flag matters more
    }
    set_.store(true, std::memory_order_release);
  }
  const std::lock_guard lock(listeners_mutex_);
  for (AbortListener* listener : listeners_) listener->on_abort();
  return true;
}

void AbortState::add(AbortListener& listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_.push_back(&listener);
  if (is_set()) listener.on_abort();
}

void AbortState::remove(AbortListener& listener) {
  const std::lock_guard lock(listeners_mutex_);
  std::erase(listeners_, &listener);
}

void AbortState::check_health() {
  const std::lock_guard lock(listeners_mutex_);
  for (AbortListener* listener : listeners_) listener->check_health();
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
