#include "tandem/model/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::int64_t kSliceMultiple = 16;  // elements: 64 bytes of fp32

// A parameter of the model, whole: experts of all ranks stacked.
struct Spec {
  ParamKind kind;
  std::int64_t rows, cols;
};

std::string_view suffix_of(ParamKind kind) {
  constexpr std::string_view suffixes[kNumParamKinds] = {
      "embedding",       "attn_norm",    "qkv",         "q_norm",
      "k_norm",          "attn_out",     "mlp_norm",    "router",
      "experts.gate_up", "experts.down", "mlp.gate_up", "mlp.down",
      "final_norm",      "head"};
  return suffixes[static_cast<int>(kind)];
}

bool is_expert(ParamKind kind) {
  return kind == ParamKind::kExpertGateUp || kind == ParamKind::kExpertDown;
}

bool is_norm(ParamKind kind) {
  switch (kind) {
    case ParamKind::kAttnNorm:
    case ParamKind::kQNorm:
    case ParamKind::kKNorm:
    case ParamKind::kMlpNorm:
    case ParamKind::kFinalNorm:
      return true;
    default:
      return false;
  }
}

// Matrices whose output is added to the residual stream.
bool writes_residual(ParamKind kind) {
  return kind == ParamKind::kAttnOut || kind == ParamKind::kExpertDown ||
         kind == ParamKind::kMlpDown;
}

std::vector<Spec> layer_specs(const ModelConfig& model, int layer) {
  const std::int64_t hidden = model.hidden, head_dim = model.head_dim;
  const std::int64_t q = model.heads * head_dim, kv = model.kv_heads * head_dim;
  std::vector<Spec> specs = {{ParamKind::kAttnNorm, hidden, 1},
                             {ParamKind::kQkv, q + 2 * kv, hidden}};
  if (model.qk_norm != QkNorm::kNone) {
    const bool full = model.qk_norm == QkNorm::kFull;
    specs.push_back({ParamKind::kQNorm, full ? q : head_dim, 1});
    specs.push_back({ParamKind::kKNorm, full ? kv : head_dim, 1});
  }
  specs.push_back({ParamKind::kAttnOut, hidden, q});
  specs.push_back({ParamKind::kMlpNorm, hidden, 1});
  if (model.is_moe(layer)) {
    const std::int64_t experts = model.experts, ffn = model.moe_ffn;
    specs.push_back({ParamKind::kRouter, experts, hidden});
    specs.push_back({ParamKind::kExpertGateUp, experts * 2 * ffn, hidden});
    specs.push_back({ParamKind::kExpertDown, experts * hidden, ffn});
  } else {
    specs.push_back({ParamKind::kMlpGateUp, 2 * std::int64_t{model.dense_ffn}, hidden});
    specs.push_back({ParamKind::kMlpDown, hidden, model.dense_ffn});
  }
  return specs;
}

Spec embedding_spec(const ModelConfig& model) {
  return {ParamKind::kEmbedding, model.vocab, model.hidden};
}
Spec final_norm_spec(const ModelConfig& model) {
  return {ParamKind::kFinalNorm, model.hidden, 1};
}
Spec head_spec(const ModelConfig& model) {
  return {ParamKind::kHead, model.vocab, model.hidden};
}

// Where a parameter stands in the table: embedding, layers, final norm and head.
std::pair<int, ParamKind> table_order(ParamKind kind, int layer) {
  const bool last = kind == ParamKind::kFinalNorm || kind == ParamKind::kHead;
  return {last ? std::numeric_limits<int>::max() : layer, kind};
}

// Parameters come chunk by chunk and every chunk begins with a dense one, so its buckets are made
// in the table's order.
class TableBuilder {
 public:
  TableBuilder(const RunConfig& config, const RankGrid& grid, int rank)
      : config_(config), grid_(grid), place_(grid.place(rank)) {}

  void add(const Spec& spec, int layer, int chunk) {
    Param param;
    param.kind = spec.kind;
    param.group = is_expert(spec.kind) ? ParamGroup::kExpert : ParamGroup::kDense;
    param.layer = layer;
    param.chunk = chunk;
    split(spec, param);
    describe_values(param);
    ParamBucket& bucket = bucket_of(chunk, param.group);
    param.offset = bucket.size;
    bucket.size += param.size();
    table_.params.push_back(std::move(param));
  }

  ParamTable done() {
    for (ParamBucket& bucket : table_.buckets) {
      const std::int64_t unit = bucket.members * kSliceMultiple;
      bucket.padded = (bucket.size + unit - 1) / unit * unit;
    }
    return std::move(table_);
  }

 private:
  // Consecutive experts live on consecutive ranks of the ep group.
  void split(const Spec& spec, Param& param) const {
    const int parts = param.group == ParamGroup::kExpert ? grid_.ep : 1;
    param.rows = spec.rows / parts;
    param.cols = spec.cols;
    param.global_size = spec.rows * spec.cols;
    param.global_begin = parts == 1 ? 0 : place_.ep * param.size();
  }

  void describe_values(Param& param) const {
    const ModelConfig& model = config_.model;
    // The tied head is the embedding: one name, hence one initial value and one decay rule.
    const bool embedding = param.kind == ParamKind::kEmbedding ||
                           (param.kind == ParamKind::kHead && model.tied_embeddings);
    const std::string_view suffix = suffix_of(embedding ? ParamKind::kEmbedding : param.kind);
    param.name =
        param.layer < 0 ? std::string(suffix) : fmt::format("layers.{}.{}", param.layer, suffix);
    if (is_norm(param.kind)) {
      param.fill = 1.0F;
      return;
    }
    // The residual stream receives 2 x layers of these; their sum then has the variance of one.
    param.init_std = writes_residual(param.kind) ? model.init_std / std::sqrt(2.0 * model.layers)
                                                 : model.init_std;
    param.decay = !embedding || config_.optimizer.decay_embeddings;
  }

  ParamBucket& bucket_of(int chunk, ParamGroup group) {
    for (ParamBucket& bucket : table_.buckets)
      if (bucket.chunk == chunk && bucket.group == group) return bucket;
    const int members = group == ParamGroup::kExpert ? grid_.edp() : grid_.dp;
    return table_.buckets.emplace_back(
        ParamBucket{.chunk = chunk, .group = group, .members = members});
  }

  const RunConfig& config_;
  const RankGrid& grid_;
  RankGrid::Place place_;
  ParamTable table_;
};

}  // namespace

const Param* ParamTable::find(ParamKind kind, int layer) const {
  const auto wanted = table_order(kind, layer);
  const auto found = std::lower_bound(params.begin(), params.end(), wanted,
                                      [](const Param& param, const auto& order) {
                                        return table_order(param.kind, param.layer) < order;
                                      });
  const bool here = found != params.end() && found->kind == kind && found->layer == layer;
  return here ? &*found : nullptr;
}

const ParamBucket* ParamTable::bucket(int chunk, ParamGroup group) const {
  for (const ParamBucket& bucket : buckets)
    if (bucket.chunk == chunk && bucket.group == group) return &bucket;
  return nullptr;
}

ParamTable make_params(const RunConfig& config, const RankGrid& grid, const Partition& partition,
                       int rank) {
  const ModelConfig& model = config.model;
  if (model.experts % grid.ep != 0)
    throw_error(ExitCode::kUsage,
                "model.experts = {} is not divisible by parallel.ep = {}; choose an ep that "
                "divides the experts",
                model.experts, grid.ep);
  const int stage = grid.place(rank).pp;
  TableBuilder table(config, grid, rank);
  for (int chunk = 0; chunk < partition.vpp; ++chunk) {
    const ChunkPlan& plan = partition.at(stage, chunk);
    if (plan.has_embedding) table.add(embedding_spec(model), -1, chunk);
    for (int layer = plan.layer_begin; layer < plan.layer_end; ++layer)
      for (const Spec& spec : layer_specs(model, layer)) table.add(spec, layer, chunk);
    if (plan.has_head) {
      table.add(final_norm_spec(model), -1, chunk);
      table.add(head_spec(model), -1, chunk);
    }
  }
  return table.done();
}

ParamCount count_params(const ModelConfig& model) {
  ParamCount count;
  const auto add = [&](const Spec& spec) {
    const std::int64_t size = spec.rows * spec.cols;
    count.total += size;
    count.active += is_expert(spec.kind) ? size / model.experts * model.topk : size;
  };
  add(embedding_spec(model));
  for (int layer = 0; layer < model.layers; ++layer)
    for (const Spec& spec : layer_specs(model, layer)) add(spec);
  add(final_norm_spec(model));
  if (!model.tied_embeddings) add(head_spec(model));
  return count;
}

}  // namespace tandem
