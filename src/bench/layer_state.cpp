#include "layer_state.h"

#include <algorithm>

#include "benches.h"
#include "tandem/base/rng.h"

namespace tandem::bench {
namespace {

// As many layers as the model has kinds, all on one stage.
RunConfig small(RunConfig config) {
  const ModelConfig model = config.model;
  config.model.moe_pattern.clear();
  for (const bool moe : {true, false})
    for (int layer = 0; layer < model.layers; ++layer)
      if (model.is_moe(layer) == moe) {
        config.model.moe_pattern.push_back(moe ? 1 : 0);
        break;
      }
  config.model.layers = static_cast<int>(config.model.moe_pattern.size());
  config.parallel.pp = config.parallel.vpp = 1;
  config.parallel.dp = config.parallel.ep;
  config.parallel.partition.clear();
  return config;
}

ParamTable params_of(const RunConfig& config) {
  return make_params(config, make_grid(config), make_partition(config), 0);
}

// A random router over all ep ranks: this rank's experts receive its even share of the rows.
Routing random_routing(const ModelDims& d) {
  Routing routing;
  if (d.experts == 0) return routing;
  const auto to_64 = [](const std::vector<std::int32_t>& counts) {
    return std::vector<std::int64_t>(counts.begin(), counts.end());
  };
  routing.send_counts = to_64(expert_counts(Spread::kRandom, d.experts, d.routed()));
  for (int source = 0; source < d.ep; ++source) {
    const std::int64_t share = d.routed() * (source + 1) / d.ep - d.routed() * source / d.ep;
    const auto counts = to_64(expert_counts(Spread::kRandom, d.local_experts, share));
    routing.recv_counts.insert(routing.recv_counts.end(), counts.begin(), counts.end());
  }
  routing.sum_received(d.local_experts);
  return routing;
}

std::vector<std::int32_t> random_tokens(const ModelDims& d, const char* name) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(d.tokens));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::int32_t>(static_cast<double>(philox_uniform(1234, stream_id(name), i)) *
                                  static_cast<double>(d.vocab));
  return tokens;
}

// The offsets of the received rows, and the counts behind them, as the counts node would leave
// them.
std::vector<std::int32_t> counts_slot(const Routing& routing, bool offsets) {
  const std::vector<std::int32_t> counts(routing.recv_counts.begin(), routing.recv_counts.end());
  if (!offsets) return counts;
  return offsets_of({routing.expert_rows.begin(), routing.expert_rows.end()});
}

}  // namespace

View LayerState::ListScratch::take(DType dtype, std::int64_t rows, std::int64_t cols) {
  View view{nullptr, dtype, rows, cols};
  view.data = tensors_.bytes(view.bytes()).data();
  return view;
}

LayerState::LayerState(Device& device, Stream& stream, const RunConfig& config)
    : config_(small(config)),
      dims_(make_dims(config_)),
      device_(device),
      tensors_(device, stream),
      scratch_(tensors_),
      params_(device, stream, params_of(config_), config_.train.dtype, config_.train.seed),
      routing_(random_routing(dims_)),
      batch_{tensors_.ints(random_tokens(dims_, "tokens")),
             tensors_.ints(random_tokens(dims_, "labels"))},
      results_(tensors_.normal(DType::kF32, 3, 1)) {}

void LayerState::fill_slot(SlotKind kind, const SlotLayout& layout, std::byte* data) {
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const SlotTensor& t = layout.tensors[i];
    const View view{data + t.offset, t.dtype, t.rows, t.cols};
    if (t.dtype != DType::kI32) tensors_.fill(view);
    if (kind == SlotKind::kCountsRecv)
      tensors_.copy(tensors_.ints(counts_slot(routing_, i == 1)), view);
  }
}

std::byte* LayerState::memory(SlotKind kind, int layer) {
  const auto [entry, fresh] = slots_.try_emplace({kind, chunk_wide(kind) ? -1 : layer}, nullptr);
  if (!fresh) return entry->second;
  const SlotLayout layout = slot_layout(kind, dims_, config_.model.qk_norm, routing_.received);
  if (layout.bytes == 0) return nullptr;
  entry->second = tensors_.bytes(static_cast<std::size_t>(layout.bytes)).as<std::byte>();
  fill_slot(kind, layout, entry->second);
  return entry->second;
}

std::vector<BoundSlot> LayerState::bind(const NodeDesc& node, int layer, ExpertGrads grads) {
  std::vector<BoundSlot> bound;
  for (const SlotUse& use : node.uses) {
    const bool stores = use.kind == SlotKind::kGradsExperts && grads == ExpertGrads::kStore;
    bound.push_back({use.kind, use.layer_offset, stores ? Access::kWrite : use.access,
                     memory(use.kind, layer + use.layer_offset), routing_.received});
  }
  return bound;
}

std::vector<ListedOp> LayerState::list(NodeKind kind, Phase phase, int layer, ExpertGrads grads) {
  const bool moe = layer < config_.model.layers && config_.model.is_moe(layer);
  const NodeDesc* node = describe(kind, phase, moe);
  TANDEM_CHECK(node != nullptr, "{}_{} does not exist", name_of(kind), name_of(phase));
  const std::vector<BoundSlot> slots = bind(*node, layer, grads);
  OpList ops;
  run_node(kind, phase,
           NodeCtx{.device = device_,
                   .stream = ops,
                   .model = config_.model,
                   .dims = dims_,
                   .params = params_,
                   .scratch = scratch_,
                   .ep = nullptr,
                   .slots = slots,
                   .batch = batch_,
                   .routing = moe ? &routing_ : nullptr,
                   .layer = layer,
                   .moe = moe,
                   .training = true,
                   .loss_scale = 1.0F,
                   .aux_scale = 1.0F,
                   .loss = results_.slice(0, 1),
                   .aux = results_.slice(1, 2),
                   .alltoall_delay_us = 0.0,
                   .loss_chunk = config_.train.loss_chunk_tokens});
  return ops.take();
}

}  // namespace tandem::bench
