// The one flag every wait of a world looks at.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

// Thrown by waits that end because the world was aborted: a consequence, never the cause.
class Aborted : public Error {
 public:
  explicit Aborted(const std::string& reason) : Error(ExitCode::kComm, reason) {}
};

// Any thread. The first reason stays.
class AbortState {
 public:
  bool set(ExitCode code, const std::string& reason) noexcept;  // true for the first caller
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
  [[nodiscard]] ExitCode code() const;
  [[nodiscard]] std::string reason() const;
  void check() const;  // throws Aborted once set

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  ExitCode code_ = ExitCode::kComm;
  std::string reason_;
};

}  // namespace tandem
