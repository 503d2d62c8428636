// A rank in miniature: all layers of a model as one chunk, every node run on one stream in order.
// Slots get fresh memory filled with NaN before they are written, so that stale reads show.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tandem/comm/world.h"
#include "tandem/nn/bodies.h"

namespace tandem::test {

class HeapScratch : public Scratch {
 public:
  explicit HeapScratch(Device& device) : device_(device) {}
  View take(DType dtype, std::int64_t rows, std::int64_t cols) override {
    const View view{nullptr, dtype, rows, cols};
    buffers_.push_back(device_.alloc(view.bytes(), "scratch"));
    return {buffers_.back().data(), dtype, rows, cols};
  }
  void clear() { buffers_.clear(); }

 private:
  Device& device_;
  std::vector<Buffer> buffers_;
};

inline RunConfig tiny_config() {
  RunConfig c;
  c.model.layers = 1;
  c.model.hidden = 16;
  c.model.heads = 2;
  c.model.kv_heads = 1;
  c.model.head_dim = 8;
  c.model.dense_ffn = 12;
  c.model.experts = 4;
  c.model.topk = 2;
  c.model.moe_ffn = 8;
  c.model.vocab = 11;
  c.model.init_std = 0.4;
  c.model.aux_loss_coef = 0.5;
  c.model.z_loss_coef = 0.05;
  c.parallel.dp = 1;
  c.train.micro_batch = 2;
  c.train.seq_len = 6;
  c.train.loss_chunk_tokens = 5;
  return c;
}

class Harness {
 public:
  // All ranks of the world form one expert-parallel group.
  Harness(RunConfig config, World& world, int batch_seed)
      : config_(with_ep(std::move(config), world.size())),
        dims_(make_dims(config_)),
        device_(make_cpu_device({})),
        stream_(device_->make_stream("compute", 0)),
        comm_(world.make_comm(everyone(world), "ep")),
        params_(make(world.rank())),
        scratch_(*device_),
        routing_(layers()),
        batch_(labels(batch_seed)),
        results_(1 + 2 * layers()) {}

  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] const ModelDims& dims() const { return dims_; }
  [[nodiscard]] Params& params() { return *params_; }
  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] const Routing& routing(int layer) const {
    return routing_[static_cast<std::size_t>(layer)];
  }
  void set_delay_us(double us) { delay_us_ = us; }

  // The scalar whose gradient the backward pass computes: scaled token losses and router losses.
  double forward(bool training = true) {
    training_ = training;
    std::fill(results_.begin(), results_.end(), 0.0F);
    const int end = config_.model.layers;
    run(NodeKind::kEmbedding, Phase::kFwd, 0);
    for (int l = 0; l < end; ++l)
      for (const NodeKind kind : layer_nodes(moe(l))) run(kind, Phase::kFwd, l);
    run(NodeKind::kHead, Phase::kFwd, end);
    return loss_scale() * static_cast<double>(results_[0]) + router_losses();
  }

  void backward() {
    const int end = config_.model.layers;
    run(NodeKind::kHead, Phase::kBwdInput, end);
    for (int l = end - 1; l >= 0; --l) {
      const auto nodes = layer_nodes(moe(l));
      for (auto kind = nodes.rbegin(); kind != nodes.rend(); ++kind) {
        for (const Phase phase : {Phase::kBwdInput, Phase::kBwdWeight})
          if (describe(*kind, phase, moe(l)) != nullptr) run(*kind, phase, l);
      }
    }
    run(NodeKind::kEmbedding, Phase::kBwdWeight, 0);
  }

  void run(NodeKind kind, Phase phase, int layer) {
    const bool routed = layer < config_.model.layers && moe(layer);
    const std::vector<BoundSlot> slots = bind(*describe(kind, phase, routed), layer);
    NodeCtx ctx = context(layer, routed);
    ctx.slots = slots;
    run_node(kind, phase, ctx);
    stream_->sync();
    scratch_.clear();
    if (kind == NodeKind::kCounts) learn_routing(layer);
  }

  NodeCtx context(int layer, bool routed) {
    NodeCtx ctx{*device_, *stream_, config_.model, dims_,  *params_,  scratch_,     comm_.get(), {},
                {},       nullptr,  layer,         routed, training_, loss_scale(), kAuxScale,   {},
                {},       delay_us_};
    const std::int64_t tokens = dims_.tokens;
    ctx.batch = {{batch_.data(), DType::kI32, tokens, 1},
                 {batch_.data() + 1, DType::kI32, tokens, 1}};
    if (routed) ctx.routing = &routing_[static_cast<std::size_t>(layer)];
    ctx.loss = {results_.data(), DType::kF32, 1, 1};
    if (layer < config_.model.layers) ctx.aux = {aux(layer), DType::kF32, 2, 1};
    ctx.loss_chunk = config_.train.loss_chunk_tokens;
    return ctx;
  }

  View slot(SlotKind kind, int layer, std::size_t index) {
    const SlotTensor t = layout(kind, layer).tensors[index];
    return {memory_.at({kind, layer}).data() + t.offset, t.dtype, t.rows, t.cols};
  }

  // What the router decided, to notice when a perturbation changed it.
  std::vector<std::int32_t> choices() {
    std::vector<std::int32_t> all;
    for (int l = 0; l < config_.model.layers; ++l) {
      if (!moe(l)) continue;
      const View chosen = slot(SlotKind::kRouterSaved, l, 2);
      all.insert(all.end(), chosen.as<std::int32_t>(), chosen.as<std::int32_t>() + chosen.size());
    }
    return all;
  }

 private:
  static constexpr float kAuxScale = 0.5F;
  using Key = std::pair<SlotKind, int>;

  static RunConfig with_ep(RunConfig c, int ranks) {
    c.parallel.dp = c.parallel.ep = ranks;
    return c;
  }
  static std::vector<int> everyone(const World& world) {
    std::vector<int> members;
    for (int r = 0; r < world.size(); ++r) members.push_back(r);
    return members;
  }
  std::unique_ptr<Params> make(int rank) {
    ParamTable table = make_params(config_, make_grid(config_), make_partition(config_), rank);
    return std::make_unique<Params>(*device_, *stream_, std::move(table), dims_.dtype, 7);
  }
  std::vector<std::int32_t> labels(int seed) const {  // tokens, and one more for the last label
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t <= dims_.tokens; ++t)
      ids.push_back(static_cast<std::int32_t>((t * t * 5 + seed * 3 + t) % dims_.vocab));
    return ids;
  }

  [[nodiscard]] std::size_t layers() const {
    return static_cast<std::size_t>(config_.model.layers);
  }
  [[nodiscard]] bool moe(int layer) const { return config_.model.is_moe(layer); }
  [[nodiscard]] float loss_scale() const { return 1.0F / static_cast<float>(dims_.tokens); }
  float* aux(int layer) { return results_.data() + 1 + 2 * layer; }

  double router_losses() {
    const ModelConfig& m = config_.model;
    const double tokens = static_cast<double>(dims_.tokens);
    double sum = 0.0, pooled = 0.0, z = 0.0, count = 0.0;
    for (int l = 0; l < m.layers; ++l) {
      if (!moe(l)) continue;
      count += 1.0;
      sum += static_cast<double>(aux(l)[0]);
      pooled = static_cast<double>(aux(l)[0]);
      z += static_cast<double>(aux(l)[1]);
    }
    if (count == 0.0) return 0.0;
    const double balance = m.aux_loss == AuxLossKind::kPerLayer
                               ? sum / (m.topk * tokens * tokens)
                               : pooled / (count * tokens * count * tokens);
    return static_cast<double>(kAuxScale) *
           (m.aux_loss_coef * m.experts * balance + m.z_loss_coef * z / tokens);
  }

  SlotLayout layout(SlotKind kind, int layer) const {
    const auto l = static_cast<std::size_t>(layer);
    const std::int64_t received = layer >= 0 && l < layers() ? routing_[l].received : 0;
    return slot_layout(kind, dims_, config_.model.qk_norm, received);
  }

  std::vector<BoundSlot> bind(const NodeDesc& node, int layer) {
    std::vector<BoundSlot> bound;
    for (const SlotUse& use : node.uses) {
      if (persistent(use.kind)) {
        const bool first = use.kind == SlotKind::kGradsExperts && stored_.insert(layer).second;
        bound.push_back({use.kind, 0, first ? Access::kWrite : use.access, nullptr, 0});
        continue;
      }
      const int l = chunk_wide(use.kind) ? -1 : layer + use.layer_offset;
      Access access = use.access;
      if (chunk_wide(use.kind) && access == Access::kAccumulate && first_moe() == layer)
        access = Access::kWrite;
      std::vector<std::byte>& bytes = memory_[{use.kind, l}];
      if (access == Access::kWrite)
        bytes.assign(static_cast<std::size_t>(layout(use.kind, l).bytes), std::byte{0xFF});
      bound.push_back({use.kind, use.layer_offset, access, bytes.data(),
                       l >= 0 && l < config_.model.layers ? routing(l).received : 0});
    }
    return bound;
  }
  [[nodiscard]] int first_moe() const {
    int l = 0;
    while (l < config_.model.layers && !moe(l)) ++l;
    return l;
  }

  void learn_routing(int layer) {
    Routing& r = routing_[static_cast<std::size_t>(layer)];
    const View sent = slot(SlotKind::kCountsSend, layer, 0);
    const View received = slot(SlotKind::kCountsRecv, layer, 0);
    r.send_counts.assign(sent.as<std::int32_t>(), sent.as<std::int32_t>() + sent.size());
    r.recv_counts.assign(received.as<std::int32_t>(),
                         received.as<std::int32_t>() + received.size());
    r.sum_received(dims_.local_experts);
  }

  RunConfig config_;
  ModelDims dims_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<Params> params_;
  HeapScratch scratch_;
  std::vector<Routing> routing_;
  std::vector<std::int32_t> batch_;
  std::vector<float> results_;  // loss, then aux of every layer
  std::map<Key, std::vector<std::byte>> memory_;
  std::set<int> stored_;  // layers whose experts have stored their gradients once
  bool training_ = true;
  double delay_us_ = 0.0;
};

}  // namespace tandem::test
