// Profiler: tells the profiler a run was started under, if any, which steps to record, and names
// what the host thread enqueues. Ranges are those of the calling thread and nest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

struct RangeCategory {
  std::string name;          // "ep F"
  std::uint32_t colour = 0;  // 0xAARRGGBB
};

class Profiler {
 public:
  virtual ~Profiler() = default;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  virtual void start() = 0;  // recording begins; neither waits for the device
  virtual void stop() = 0;   // and ends
  virtual void push(const std::string& name, int category) = 0;  // index into the categories
  virtual void pop() = 0;

 protected:
  Profiler() = default;
};

// NVTX ranges in the domain "tandem" and the window of cudaProfilerStart and -Stop (nsys and ncu
// with a capture range); nullptr in a build without CUDA.
std::unique_ptr<Profiler> make_profiler(const std::vector<RangeCategory>& categories);

// A range for as long as it lives; nothing where there is no profiler.
class ProfilerRange {
 public:
  ProfilerRange(Profiler* profiler, const std::string& name, int category) : profiler_(profiler) {
    if (profiler_ != nullptr) profiler_->push(name, category);
  }
  ~ProfilerRange() {
    if (profiler_ != nullptr) profiler_->pop();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Profiler* profiler_;
};

}  // namespace tandem
