// The one flag every wait of a world looks at, and those who wait where they cannot look.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/aborted.h"

namespace tandem {

// A part of the world that waits inside a library. Both are called from any thread, one at a time,
// and must not wait.
class AbortListener {
 public:
  virtual ~AbortListener() = default;
  virtual void on_abort() noexcept = 0;  // ends its waits, soon; may come twice
  virtual void check_health() = 0;       // throws Error(kComm) when the library has failed
};

// Any thread. The first reason stays.
class AbortState {
 public:
  bool set(ExitCode code, const std::string& reason) noexcept;  // true for the first caller
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
  [[nodiscard]] ExitCode code() const;
  [[nodiscard]] std::string reason() const;
  void check() const;  // throws Aborted once set

  // From add() on the listener is told, also of an abort that was before; not after remove().
  void add(AbortListener& listener);
  void remove(AbortListener& listener);
  void check_health();  // of all listeners

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  ExitCode code_ = ExitCode::kComm;
  std::string reason_;
  std::mutex listeners_mutex_;  // held while they are called
  std::vector<AbortListener*> listeners_;
};

}  // namespace tandem
