// One layer of a model on one rank with everything its nodes read and write, so that a node's body
// can be listed op by op without a schedule, other ranks or the rest of the model.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "listing_device.h"
#include "tandem/nn/node_ctx.h"
#include "tensors.h"

namespace tandem::bench {

// What a body does to the gradients of experts: a step's first micro-batch stores them, the others
// add to them.
enum class ExpertGrads { kAdd, kStore };

class LayerState {
 public:
  // Embedding, one layer for every kind the model has (MoE first), and head. Slots no listed node
  // writes, those of the all-to-alls, hold random rows as a random router spreads them.
  LayerState(Device& device, Stream& stream, const RunConfig& config);

  // The ops of a node's body, in order; to be run while this lives and after fill_all, bodies in
  // the order of a step.
  std::vector<ListedOp> list(NodeKind kind, Phase phase, int layer, ExpertGrads grads);
  void fill_all() { tensors_.fill_all(); }  // once everything is listed

  [[nodiscard]] const RunConfig& config() const { return config_; }  // of the small model

 private:
  class ListScratch : public Scratch {
   public:
    explicit ListScratch(Tensors& tensors) : tensors_(tensors) {}
    View take(DType dtype, std::int64_t rows, std::int64_t cols) override;

   private:
    Tensors& tensors_;
  };

  std::vector<BoundSlot> bind(const NodeDesc& node, int layer, ExpertGrads grads);
  std::byte* memory(SlotKind kind, int layer);
  void fill_slot(SlotKind kind, const SlotLayout& layout, std::byte* data);

  const RunConfig config_;
  const ModelDims dims_;
  ListingDevice device_;
  Tensors tensors_;
  ListScratch scratch_;
  Params params_;
  Routing routing_;
  BatchView batch_;
  View results_;  // f32 [3]: loss, aux
  std::map<std::pair<SlotKind, int>, std::byte*> slots_;
};

}  // namespace tandem::bench
