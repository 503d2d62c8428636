// The two implementations of the experts' products on CUDA. Private.
#pragma once

#include "tandem/device/cuda_stream.h"
#include "tandem/ops/ops.h"

namespace tandem::cuda {

// Products of all experts e, with `rows` rows of tokens in total:
//   kForward        y = x w^T      x [rows, depth], w [experts, cols, depth], y [rows, cols]
//   kBackwardInput  y = x w        x [rows, depth], w [experts, depth, cols], y [rows, cols]
//   kWeight      d_w (+)= d_y^T x  d_y [rows, height], x [rows, cols], d_w [experts, height, cols]
enum class Form { kForward, kBackwardInput, kWeight };

// Zeros in d_w of the experts without rows, for which neither implementation writes anything.
void zero_idle_experts(const ops::GroupedGemmWeight& op, CudaStream& stream);

// cuBLAS, one product an expert: any shape and dtype, any GPU. Sizes are those of host_rows.
void cublas_grouped(const ops::GroupedGemm& op, CudaStream& stream);
void cublas_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream);

// Hopper's tensor cores for bf16 and fp16 (wgmma fed by TMA), sizes read on the device. False where
// GPU or shape do not fit; nothing was enqueued then.
bool hopper_grouped(const ops::GroupedGemm& op, CudaStream& stream);
bool hopper_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream);

}  // namespace tandem::cuda
