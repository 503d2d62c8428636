// Microseconds since the device was made, on the steady clock.
#pragma once

#include <chrono>

namespace tandem::cpu {

class Clock {
 public:
  [[nodiscard]] double now_us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::cpu
