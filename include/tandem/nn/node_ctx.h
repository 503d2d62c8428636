// NodeCtx: everything a node body can reach. Bodies are plain functions that only enqueue work on
// ctx.stream; they run on the host thread of the executor and never block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/comm.h"
#include "tandem/config/config.h"
#include "tandem/device/device.h"
#include "tandem/model/node.h"
#include "tandem/model/slot.h"
#include "tandem/nn/params.h"

namespace tandem {

// What the host knows of one layer's routing after HOST_WAIT. Host memory, kept until the layer's
// backward pass has been enqueued.
struct Routing {
  std::vector<std::int64_t> send_counts;  // [experts]: rows this rank sends to each expert
  std::vector<std::int64_t> recv_counts;  // [ep * local_experts]: rows from (source, local expert)
  std::vector<std::int64_t> expert_rows;  // [local_experts]: recv_counts summed over sources
  std::int64_t received = 0;              // sum of recv_counts
  // Sets expert_rows and received from recv_counts.
  void sum_received(std::int64_t local_experts);
};

// One slot a node declared, bound to memory.
struct BoundSlot {
  SlotKind kind;
  int layer_offset;
  Access access;
  std::byte* data;
  std::int64_t received;  // rows its counted tensors were sized for
};

// Grow-only scratch of one lane; contents live until the node that took it ends on the lane.
class Scratch {
 public:
  virtual ~Scratch() = default;
  virtual View take(DType dtype, std::int64_t rows, std::int64_t cols) = 0;
};

struct BatchView {      // of one micro-batch, device memory
  View tokens, labels;  // [T] i32
};

struct NodeCtx {
  Device& device;
  Stream& stream;
  const ModelConfig& model;
  const ModelDims& dims;
  Params& params;
  Scratch& scratch;
  Comm* ep;  // ep lane nodes only
  std::span<const BoundSlot> slots;
  BatchView batch;         // embedding and head only
  const Routing* routing;  // dispatch, experts, combine; else nullptr
  int layer;               // global layer
  bool moe;
  bool training;             // false: evaluation, the head computes the loss only
  // Both times the factor of fp16's loss scaling:
  float loss_scale;          // 1 / tokens of the global batch: dL/d(loss of one token)
  float aux_scale;           // 1 / micro-batches of the global batch
  View loss;                 // head: f32 [1], += sum of token losses
  View aux;                  // attention with router: f32 [2], written: RouterLoss of this layer
  double alltoall_delay_us;  // modelled network time, on the ep lane before the rows travel
  std::int64_t loss_chunk = 1024;  // tokens whose logits exist at a time in the head

  // Tensor `index` of a declared slot (order: model/slot.h). Throws Error(kInternal) unless the
  // slot is declared with a fitting access: in() needs kRead or kAccumulate, out() kWrite or
  // kAccumulate.
  [[nodiscard]] View in(SlotKind kind, std::size_t index = 0, int layer_offset = 0) const;
  [[nodiscard]] View out(SlotKind kind, std::size_t index = 0, int layer_offset = 0) const;
  // True when a slot declared kAccumulate is bound kWrite: its content is undefined, start afresh.
  [[nodiscard]] bool starts_afresh(SlotKind kind) const;
  // Of this layer; embedding, final norm and head belong to none. The node must declare kParams,
  // kGrads or (final norm and head) kGradsHead or (experts) kGradsExperts.
  [[nodiscard]] View param(ParamKind kind) const;
  [[nodiscard]] View grad(ParamKind kind) const;  // f32
};

// Enqueues the body of a node. Throws Error(kInternal) where the combination does not exist.
void run_node(NodeKind kind, Phase phase, const NodeCtx& ctx);

}  // namespace tandem
