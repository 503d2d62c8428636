// Grow-only device memory of one stream. Stream-ordered, so a larger piece may replace one that is
// still in use. That of the stream, local<Workspace>(), is for partial results of one op; what is
// to last from one op to the next has a Workspace of its own.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "tandem/device/cuda_check.h"
#include "tandem/device/cuda_stream.h"

namespace tandem::cuda {

class Workspace {
 public:
  explicit Workspace(CudaStream& stream) : stream_(stream.handle()) {}
  ~Workspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Valid until the next call. Every op calls it once and splits what it gets.
  template <class T>
  T* at_least(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes > bytes_) {
      if (data_ != nullptr) TANDEM_CUDA_CHECK(cudaFreeAsync(data_, stream_));
      data_ = nullptr;
      bytes_ = 0;
      TANDEM_CUDA_CHECK(cudaMallocAsync(&data_, bytes + bytes / 4, stream_));
      bytes_ = bytes + bytes / 4;
    }
    return static_cast<T*>(data_);
  }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tandem::cuda
