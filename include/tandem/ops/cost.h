// What an op costs at least: the floating-point operations of its products and the bytes it has to
// move, from its shapes alone. Tools compare measured times with these; kernels do not read them.
//
// flops: a multiply-add counts two, only matrix products count, a causal mask halves. bytes: every
// input read once and every output written once; what is updated in place or accumulated is both.
// A new op gets an overload here, or launch() does not compile for it.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/ops/ops.h"

namespace tandem::ops {

struct OpCost {
  std::string_view name;  // "gemm", "rms_norm_bwd"
  double flops = 0, bytes = 0;
  std::int64_t rows = 0, cols = 0, inner = 0;  // what the op works on; inner: products, else 0
};

OpCost cost(const Gemm& op);
OpCost cost(const GroupedGemm& op);        // every expert's weights count, also of an idle expert
OpCost cost(const GroupedGemmWeight& op);
OpCost cost(const RmsNormFwd& op);
OpCost cost(const RmsNormApply& op);
OpCost cost(const RmsNormBwd& op);
OpCost cost(const EmbeddingFwd& op);
OpCost cost(const EmbeddingBwd& op);       // as if no two tokens were equal
OpCost cost(const QkNormFwd& op);
OpCost cost(const QkNormBwd& op);
OpCost cost(const Rope& op);
OpCost cost(const AttentionFwd& op);       // two products
OpCost cost(const AttentionBwd& op);       // five: one of the forward pass is computed again
OpCost cost(const RouterFwd& op);
OpCost cost(const RouterBwd& op);
OpCost cost(const RouterLoss& op);
OpCost cost(const PermutePlan& op);
OpCost cost(const PermuteRows& op);
OpCost cost(const PermuteWeights& op);
OpCost cost(const UnpermuteSum& op);
OpCost cost(const UnpermuteWeights& op);
OpCost cost(const ExpertOffsets& op);
OpCost cost(const SwiGluFwd& op);
OpCost cost(const SwiGluBwd& op);
OpCost cost(const CrossEntropy& op);
OpCost cost(const Add& op);
OpCost cost(const AddTo& op);
OpCost cost(const SplitHalves& op);
OpCost cost(const Cast& op);
OpCost cost(const Sum& op);
OpCost cost(const SquareSum& op);
OpCost cost(const ClipScale& op);
OpCost cost(const InitNormal& op);
OpCost cost(const AdamW& op);

template <class Op>
double flops(const Op& op) {
  return cost(op).flops;
}
template <class Op>
double bytes(const Op& op) {
  return cost(op).bytes;
}
template <class Op>
std::string_view name(const Op& op) {
  return cost(op).name;
}

}  // namespace tandem::ops
