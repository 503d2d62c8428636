// The two implementations of the experts' products on CUDA. Private.
#pragma once

#include "tandem/device/cuda_stream.h"
#include "tandem/ops/ops.h"

namespace tandem::cuda {

// cuBLAS, one product an expert: any shape and dtype, any GPU. Needs host_rows.
void cublas_grouped(const ops::GroupedGemm& op, CudaStream& stream);
void cublas_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream);

// Hopper's tensor cores for bf16 and fp16 (wgmma fed by TMA). False where GPU or shape do not fit; nothing was
// enqueued then.
bool hopper_grouped(const ops::GroupedGemm& op, CudaStream& stream);
bool hopper_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream);

}  // namespace tandem::cuda
