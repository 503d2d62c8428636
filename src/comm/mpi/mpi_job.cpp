#include "mpi_job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace tandem::mpi {
namespace {

constexpr int kLooks = 20;
constexpr int kYields = 20;
constexpr double kShortestSleepUs = 2;
constexpr double kLongestSleepUs = 100;
// What the kernel adds to any short sleep (its default timer slack).
constexpr double kSlackUs = 50;

}  // namespace

void check(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw_error(ExitCode::kComm, "{} failed: {}", what,
              std::string(text.data(), static_cast<std::size_t>(length)));
}

void Pause::operator()() {
  ++looks_;
  if (looks_ <= kLooks) return;
  if (looks_ <= kLooks + kYields) return std::this_thread::yield();
  const double sleep_us = std::clamp(waited_us_ / 8, kShortestSleepUs, kLongestSleepUs);
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(sleep_us));
  waited_us_ += sleep_us + kSlackUs;
}

}  // namespace tandem::mpi
