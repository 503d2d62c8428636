// What the products on cuBLAS share. Private.
#pragma once

#include <cublas_v2.h>

#include "tandem/base/dtype.h"
#include "tandem/base/error.h"

namespace tandem::cuda {

// Throws Error(kInternal) that names the call.
inline void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw_error(ExitCode::kInternal, "cuBLAS: {} failed: {}", call, cublasGetStatusString(status));
}

inline cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::kF32) return CUDA_R_32F;
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  if (dtype == DType::kF16) return CUDA_R_16F;
  throw_error(ExitCode::kInternal, "cuBLAS: no type for {}", name_of(dtype));
}

}  // namespace tandem::cuda
