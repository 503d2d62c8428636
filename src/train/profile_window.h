// The steps in which NVIDIA's profilers record: logging.profile_begin and profile_steps.
#pragma once

#include <cstdint>
#include <memory>

#include "engine.h"
#include "tandem/device/profiler.h"

namespace tandem {

class ProfileWindow {
 public:
  // None where the keys ask for none, or the device has none to offer.
  ProfileWindow(Engine& engine, const LoggingConfig& config);
  // With this profiler, on any device; none where it is null.
  ProfileWindow(Engine& engine, const LoggingConfig& config, std::unique_ptr<Profiler> profiler);
  ~ProfileWindow();

  void before(std::int64_t step);  // steps count from 0
  void after(std::int64_t step);

 private:
  Engine& engine_;
  const std::int64_t begin_, end_;
  std::unique_ptr<Profiler> profiler_;  // null outside the runs that ask for one
  bool open_ = false;
};

}  // namespace tandem
