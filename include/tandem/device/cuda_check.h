// CUDA errors as exceptions that name the call. Private to CUDA sources.
#pragma once

#include <cuda_runtime.h>

#include "tandem/base/error.h"

namespace tandem::cuda {

// Out of memory and a GPU this build was not made for get their own exit codes; everything else is
// internal: a broken kernel or driver.
inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) [[likely]]
    return;
  if (status == cudaErrorNoKernelImageForDevice)
    throw_error(ExitCode::kUsage,
                "this build has no kernels for this kind of GPU: configure with "
                "-DCMAKE_CUDA_ARCHITECTURES=NN, as nvidia-smi --query-gpu=compute_cap says, or set "
                "train.device=cpu");
  const ExitCode code =
      status == cudaErrorMemoryAllocation ? ExitCode::kMemory : ExitCode::kInternal;
  throw_error(code, "{}:{}: {} failed: {} ({})", file, line, call, cudaGetErrorString(status),
              cudaGetErrorName(status));
}

// Whether there was memory; if not, the caller says for what, and what to change. Other errors
// throw.
inline bool allocated(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the failure is handled here, not at the next check
    return false;
  }
  check(status, call, file, line);
  return true;
}

}  // namespace tandem::cuda

#define TANDEM_CUDA_CHECK(call) ::tandem::cuda::check((call), #call, __FILE__, __LINE__)
#define TANDEM_CUDA_ALLOCATED(call) ::tandem::cuda::allocated((call), #call, __FILE__, __LINE__)
// Behind a kernel launch, which returns nothing itself.
#define TANDEM_CUDA_CHECK_LAUNCH(kernel) \
  ::tandem::cuda::check(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)
