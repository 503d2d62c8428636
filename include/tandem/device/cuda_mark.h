// A point in a CUDA stream that a host thread can wait for without burning a core. Private to CUDA
// sources.
#pragma once

#include "tandem/device/cuda_check.h"

namespace tandem {

class CudaMark {
 public:
  CudaMark() {
    TANDEM_CUDA_CHECK(
        cudaEventCreateWithFlags(&event_, cudaEventBlockingSync | cudaEventDisableTiming));
  }
  ~CudaMark() { cudaEventDestroy(event_); }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  void record(cudaStream_t stream) { TANDEM_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  // Waits for the latest record; at once when there was none.
  [[nodiscard]] cudaError_t wait() const { return cudaEventSynchronize(event_); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tandem
