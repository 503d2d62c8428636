// CPU behaviours of the ops. Called on a stream's worker thread; blocking there.
#pragma once

#include "tandem/device/workers.h"
#include "tandem/ops/ops.h"

namespace tandem::cpu {

void run(const ops::Gemm& op, Workers& workers);
void run(const ops::GroupedGemm& op, Workers& workers);
void run(const ops::GroupedGemmWeight& op, Workers& workers);
void run(const ops::RmsNormFwd& op, Workers& workers);
void run(const ops::RmsNormApply& op, Workers& workers);
void run(const ops::RmsNormBwd& op, Workers& workers);
void run(const ops::EmbeddingFwd& op, Workers& workers);
void run(const ops::EmbeddingBwd& op, Workers& workers);
void run(const ops::QkNormFwd& op, Workers& workers);
void run(const ops::QkNormBwd& op, Workers& workers);
void run(const ops::Rope& op, Workers& workers);
void run(const ops::AttentionFwd& op, Workers& workers);
void run(const ops::AttentionBwd& op, Workers& workers);
void run(const ops::RouterFwd& op, Workers& workers);
void run(const ops::RouterBwd& op, Workers& workers);
void run(const ops::RouterLoss& op, Workers& workers);
void run(const ops::PermutePlan& op, Workers& workers);
void run(const ops::PermuteRows& op, Workers& workers);
void run(const ops::PermuteWeights& op, Workers& workers);
void run(const ops::UnpermuteSum& op, Workers& workers);
void run(const ops::UnpermuteWeights& op, Workers& workers);
void run(const ops::ExpertOffsets& op, Workers& workers);
void run(const ops::SwiGluFwd& op, Workers& workers);
void run(const ops::SwiGluBwd& op, Workers& workers);
void run(const ops::CrossEntropy& op, Workers& workers);
void run(const ops::Add& op, Workers& workers);
void run(const ops::AddTo& op, Workers& workers);
void run(const ops::SplitHalves& op, Workers& workers);
void run(const ops::Cast& op, Workers& workers);
void run(const ops::Sum& op, Workers& workers);
void run(const ops::SquareSum& op, Workers& workers);
void run(const ops::ClipScale& op, Workers& workers);
void run(const ops::InitNormal& op, Workers& workers);
void run(const ops::AdamW& op, Workers& workers);

}  // namespace tandem::cpu
