// Every op of a layer's nodes, of embedding and head, timed where its node runs it. The ops come
// from the node bodies themselves, so this table cannot drift from what training does. The weight
// gradients of experts are timed both ways: as a step's first micro-batch stores them, and added.
#include "benches.h"
#include "layer_state.h"

namespace tandem::bench {
namespace {

struct Step {
  NodeKind kind;
  Phase phase;
  ExpertGrads grads = ExpertGrads::kAdd;
};

constexpr Step kMoeSteps[] = {{NodeKind::kAttention, Phase::kFwd},
                              {NodeKind::kExperts, Phase::kFwd},
                              {NodeKind::kAggregate, Phase::kFwd},
                              {NodeKind::kAggregate, Phase::kBwdInput},
                              {NodeKind::kExperts, Phase::kBwdInput},
                              {NodeKind::kExperts, Phase::kBwdWeight, ExpertGrads::kStore},
                              {NodeKind::kExperts, Phase::kBwdWeight, ExpertGrads::kAdd},
                              {NodeKind::kAttention, Phase::kBwdInput},
                              {NodeKind::kAttention, Phase::kBwdWeight}};
constexpr Step kDenseSteps[] = {
    {NodeKind::kAttention, Phase::kFwd},      {NodeKind::kMlp, Phase::kFwd},
    {NodeKind::kMlp, Phase::kBwdInput},       {NodeKind::kMlp, Phase::kBwdWeight},
    {NodeKind::kAttention, Phase::kBwdInput}, {NodeKind::kAttention, Phase::kBwdWeight}};

bool forward(const Step& step) {
  return step.phase == Phase::kFwd;
}

// The nodes of a step in order, each with its layer: forward through the layers, head, and back.
std::vector<std::pair<Step, int>> step_order(const ModelConfig& model) {
  std::vector<std::pair<Step, int>> order = {{{NodeKind::kEmbedding, Phase::kFwd}, 0}};
  const auto steps = [&](int layer) {
    return model.is_moe(layer) ? std::span<const Step>(kMoeSteps)
                               : std::span<const Step>(kDenseSteps);
  };
  for (int layer = 0; layer < model.layers; ++layer)
    for (const Step& step : steps(layer))
      if (forward(step)) order.push_back({step, layer});
  order.push_back({{NodeKind::kHead, Phase::kFwd}, model.layers});
  order.push_back({{NodeKind::kHead, Phase::kBwdInput}, model.layers});
  for (int layer = model.layers - 1; layer >= 0; --layer)
    for (const Step& step : steps(layer))
      if (!forward(step)) order.push_back({step, layer});
  order.push_back({{NodeKind::kEmbedding, Phase::kBwdWeight}, 0});
  return order;
}

std::string group_of(const Step& step) {
  const std::string node = fmt::format("{}_{}", name_of(step.kind), name_of(step.phase));
  if (step.kind != NodeKind::kExperts || step.phase != Phase::kBwdWeight) return node;
  return node + storing_or_adding(step.grads == ExpertGrads::kAdd);
}

Candidate to_candidate(const std::string& group, ListedOp op) {
  return {group,         std::string(op.cost.name), shape_text(op.cost), op.cost.flops,
          op.cost.bytes, std::move(op.run)};
}

// The node as a whole: times add, and so do the times the limits would allow.
Row sum_of(const std::vector<Row>& rows) {
  Row sum;
  sum.group = rows.front().group;
  sum.name = "total";
  double allowed_ms = 0;
  for (const Row& row : rows) {
    sum.ms += row.ms;
    sum.min_ms += row.min_ms;
    sum.flops += row.flops;
    sum.bytes += row.bytes;
    allowed_ms += row.share * row.ms;
  }
  sum.share = sum.ms > 0 ? allowed_ms / sum.ms : 0.0;
  sum.unit = sum.flops > 0 ? "TFLOP/s" : "GB/s";
  const double seconds = sum.ms / 1e3;
  if (seconds > 0)
    sum.rate = sum.flops > 0 ? sum.flops / seconds / 1e12 : sum.bytes / seconds / 1e9;
  return sum;
}

std::vector<Row> with_sums(const std::vector<Row>& rows) {
  std::vector<Row> out, node;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.push_back(rows[i]);
    node.push_back(rows[i]);
    if (i + 1 < rows.size() && rows[i + 1].group == rows[i].group) continue;
    if (node.size() > 1) out.push_back(sum_of(node));
    node.clear();
  }
  return out;
}

}  // namespace

Measured bench_layer(Device& device, Stream& stream, const RunConfig& config, int repeats) {
  LayerState state(device, stream, config);
  const ModelConfig& model = state.config().model;
  std::vector<Candidate> list;
  for (const auto& [step, layer] : step_order(model)) {
    std::string group = group_of(step);
    if (model.layers > 1 && step.kind == NodeKind::kAttention)
      group += model.is_moe(layer) ? " (moe)" : " (dense)";
    for (ListedOp& op : state.list(step.kind, step.phase, layer, step.grads))
      list.push_back(to_candidate(group, std::move(op)));
  }
  state.fill_all();
  Measured measured = measure(device, stream, config.train.dtype, repeats, list);
  measured.rows = with_sums(measured.rows);
  return measured;
}

}  // namespace tandem::bench
