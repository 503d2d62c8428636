#include "tandem/model/memory.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr std::int64_t kF32Bytes = 4;
constexpr std::int64_t kOptimizerTensors = 3;  // master, m, v

bool touches(NodeKind node, Phase phase, bool moe, SlotKind kind) {
  const NodeDesc* desc = describe(node, phase, moe);
  return desc != nullptr && std::any_of(desc->uses.begin(), desc->uses.end(),
                                        [kind](const SlotUse& use) { return use.kind == kind; });
}

bool touched_in(SlotKind kind, std::initializer_list<Phase> phases) {
  for (int node = 0; node <= static_cast<int>(NodeKind::kHead); ++node)
    for (const Phase phase : phases)
      for (const bool moe : {false, true})
        if (touches(static_cast<NodeKind>(node), phase, moe, kind)) return true;
  return false;
}

}  // namespace

MemoryPlan static_memory(const ParamTable& table, DType dtype) {
  MemoryPlan plan;
  for (const ParamBucket& bucket : table.buckets) {
    plan.params += bucket.padded * static_cast<std::int64_t>(size_of(dtype));
    plan.grads += bucket.padded * kF32Bytes;
    plan.optimizer += bucket.padded / bucket.members * kOptimizerTensors * kF32Bytes;
  }
  return plan;
}

std::int64_t expected_slot_bytes(SlotKind kind, const ModelDims& dims, QkNorm qk_norm) {
  return slot_layout(kind, dims, qk_norm, dims.routed()).bytes;
}

bool saved_for_backward(SlotKind kind) {
  return !persistent(kind) && touched_in(kind, {Phase::kFwd}) &&
         touched_in(kind, {Phase::kBwdInput, Phase::kBwdWeight});
}

}  // namespace tandem
