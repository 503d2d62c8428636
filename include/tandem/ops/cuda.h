// CUDA behaviours of the ops: enqueued on the stream, they return at once.
#pragma once

#include "tandem/device/cuda_stream.h"
#include "tandem/ops/ops.h"

namespace tandem::cuda {

void run(const ops::Gemm& op, CudaStream& stream);
void run(const ops::GroupedGemm& op, CudaStream& stream);
void run(const ops::GroupedGemmWeight& op, CudaStream& stream);
void run(const ops::RmsNormFwd& op, CudaStream& stream);
void run(const ops::RmsNormApply& op, CudaStream& stream);
void run(const ops::RmsNormBwd& op, CudaStream& stream);
void run(const ops::EmbeddingFwd& op, CudaStream& stream);
void run(const ops::EmbeddingBwd& op, CudaStream& stream);
void run(const ops::QkNormFwd& op, CudaStream& stream);
void run(const ops::QkNormBwd& op, CudaStream& stream);
void run(const ops::Rope& op, CudaStream& stream);
void run(const ops::AttentionFwd& op, CudaStream& stream);
void run(const ops::AttentionBwd& op, CudaStream& stream);
void run(const ops::RouterFwd& op, CudaStream& stream);
void run(const ops::RouterBwd& op, CudaStream& stream);
void run(const ops::RouterLoss& op, CudaStream& stream);
void run(const ops::PermutePlan& op, CudaStream& stream);
void run(const ops::PermuteRows& op, CudaStream& stream);
void run(const ops::PermuteWeights& op, CudaStream& stream);
void run(const ops::UnpermuteSum& op, CudaStream& stream);
void run(const ops::UnpermuteWeights& op, CudaStream& stream);
void run(const ops::ExpertOffsets& op, CudaStream& stream);
void run(const ops::SwiGluFwd& op, CudaStream& stream);
void run(const ops::SwiGluBwd& op, CudaStream& stream);
void run(const ops::CrossEntropy& op, CudaStream& stream);
void run(const ops::Add& op, CudaStream& stream);
void run(const ops::AddTo& op, CudaStream& stream);
void run(const ops::SplitHalves& op, CudaStream& stream);
void run(const ops::Cast& op, CudaStream& stream);
void run(const ops::Sum& op, CudaStream& stream);
void run(const ops::SquareSum& op, CudaStream& stream);
void run(const ops::ClipScale& op, CudaStream& stream);
void run(const ops::InitNormal& op, CudaStream& stream);
void run(const ops::AdamW& op, CudaStream& stream);

}  // namespace tandem::cuda
