// Owners of what communicators of GPU memory hold: memory that only grows, the one stream.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

#include "tandem/device/cuda_check.h"
#include "tandem/device/cuda_mark.h"
#include "tandem/device/cuda_stream.h"

namespace tandem {

// From the driver's pool, ready when allocate() returns: cudaMalloc and cudaFree may wait for every
// lane, and a lane may be waiting for another rank that waits for this one.
struct DeviceSpace {
  static constexpr const char* kName = "GPU memory";
  static cudaError_t allocate(void** data, std::size_t bytes) {
    const cudaError_t status = cudaMallocAsync(data, bytes, cudaStreamPerThread);
    // hazard: the allocation before the stream of the communicator touches the memory
    return status == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : status;
  }
  // Does not wait: the owner waits for the last use of the memory first.
  static void release(void* data) { cudaFreeAsync(data, cudaStreamPerThread); }
};
struct PinnedSpace {
  static constexpr const char* kName = "pinned host memory";
  static cudaError_t allocate(void** data, std::size_t bytes) {
    return cudaHostAlloc(data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  }
  static void release(void* data) { cudaFreeHost(data); }
};

// Grow-only staging memory. What it has outgrown stays until the end: copies under way may use it,
// and releasing pinned memory waits for the whole GPU, which may be waiting for another rank.
template <class Space>
class StagingMemory {
 public:
  // Some at once, while no lane waits for another rank: allocating pinned memory may wait for every
  // lane.
  StagingMemory() { at_least(kSmallest); }

  std::byte* at_least(std::size_t bytes) {
    if (bytes <= capacity_ && !pieces_.empty()) return pieces_.back().get();
    const std::size_t wanted = std::bit_ceil(std::max(bytes, kSmallest));
    void* data = nullptr;
    if (!TANDEM_CUDA_ALLOCATED(Space::allocate(&data, wanted)))
      throw_error(ExitCode::kMemory,
                  "out of memory: a communicator needs {} bytes of {}; use smaller micro-batches",
                  wanted, Space::kName);
    pieces_.emplace_back(static_cast<std::byte*>(data));
    capacity_ = wanted;
    return pieces_.back().get();
  }

 private:
  static constexpr std::size_t kSmallest = std::size_t{4} << 20;
  struct Release {
    void operator()(std::byte* data) const { Space::release(data); }
  };
  std::vector<std::unique_ptr<std::byte, Release>> pieces_;  // the last one is in use
  std::size_t capacity_ = 0;
};

// Parts of staging memory start at multiples of this.
constexpr std::size_t staging_size(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The stream of a communicator. Always the same: staging memory is used again in stream order.
class CommStream {
 public:
  cudaStream_t of(Stream& stream, const std::string& comm) {
    auto* cuda = dynamic_cast<CudaStream*>(&stream);
    TANDEM_CHECK(cuda != nullptr, "{}: stream {} is not a CUDA stream", comm, stream.name());
    if (handle_ == nullptr) handle_ = cuda->handle();
    TANDEM_CHECK(handle_ == cuda->handle(), "{}: used from a second stream, {}", comm,
                 stream.name());
    return handle_;
  }

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace tandem
