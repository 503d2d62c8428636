#include "tandem/nn/node_ctx.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

const BoundSlot* find(const NodeCtx& ctx, SlotKind kind, int layer_offset, Access wanted) {
  for (const BoundSlot& slot : ctx.slots) {
    const bool fits = slot.access == wanted || slot.access == Access::kAccumulate;
    if (slot.kind == kind && slot.layer_offset == layer_offset && fits) return &slot;
  }
  return nullptr;
}

const BoundSlot& declared(const NodeCtx& ctx, SlotKind kind, int layer_offset, Access wanted) {
  const BoundSlot* slot = find(ctx, kind, layer_offset, wanted);
  if (slot == nullptr) {
    throw_error(ExitCode::kInternal,
                "a node of layer {} {} slot {} (layer offset {}), which its description does not "
                "declare; add it to the node's uses in src/model/node.cpp",
                ctx.layer, wanted == Access::kRead ? "reads" : "writes", name_of(kind),
                layer_offset);
  }
  return *slot;
}

View tensor(const NodeCtx& ctx, const BoundSlot& slot, std::size_t index) {
  const SlotLayout layout = slot_layout(slot.kind, ctx.dims, ctx.model.qk_norm, slot.received);
  TANDEM_CHECK(index < layout.tensors.size(), "slot {} has no tensor of that number",
               name_of(slot.kind));
  const SlotTensor& t = layout.tensors[index];
  if (t.rows * t.cols == 0) return {nullptr, t.dtype, t.rows, t.cols};
  TANDEM_CHECK(slot.data != nullptr, "slot {} of layer {} is bound to no memory",
               name_of(slot.kind), ctx.layer + slot.layer_offset);
  return {slot.data + t.offset, t.dtype, t.rows, t.cols};
}

SlotKind gradients_of(ParamKind kind) {
  if (kind == ParamKind::kFinalNorm || kind == ParamKind::kHead) return SlotKind::kGradsHead;
  if (kind == ParamKind::kExpertGateUp || kind == ParamKind::kExpertDown)
    return SlotKind::kGradsExperts;
  return SlotKind::kGrads;
}

bool outside_layers(ParamKind kind) {
  return kind == ParamKind::kEmbedding || kind == ParamKind::kFinalNorm || kind == ParamKind::kHead;
}

}  // namespace

void Routing::sum_received(std::int64_t local_experts) {
  expert_rows.assign(static_cast<std::size_t>(local_experts), 0);
  received = 0;
  for (std::size_t i = 0; i < recv_counts.size(); ++i) {
    expert_rows[i % expert_rows.size()] += recv_counts[i];
    received += recv_counts[i];
  }
}

View NodeCtx::in(SlotKind kind, std::size_t index, int layer_offset) const {
  return tensor(*this, declared(*this, kind, layer_offset, Access::kRead), index);
}

View NodeCtx::out(SlotKind kind, std::size_t index, int layer_offset) const {
  return tensor(*this, declared(*this, kind, layer_offset, Access::kWrite), index);
}

bool NodeCtx::starts_afresh(SlotKind kind) const {
  return declared(*this, kind, 0, Access::kWrite).access == Access::kWrite;
}

View NodeCtx::param(ParamKind kind) const {
  declared(*this, SlotKind::kParams, 0, Access::kRead);
  return params.value(kind, outside_layers(kind) ? -1 : layer);
}

View NodeCtx::grad(ParamKind kind) const {
  declared(*this, gradients_of(kind), 0, Access::kWrite);
  return params.grad(kind, outside_layers(kind) ? -1 : layer);
}

}  // namespace tandem
