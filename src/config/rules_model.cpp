#include <algorithm>
#include <limits>

#include "rules.h"

namespace tandem::config {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

int moe_layers(const ModelConfig& m) {
  int count = 0;
  for (int layer = 0; layer < m.layers; ++layer) count += m.is_moe(layer) ? 1 : 0;
  return count;
}

// An upper bound, in double: it must not overflow before it is compared.
double parameters(const ModelConfig& m) {
  const double hidden = m.hidden;
  const double attention = (2.0 * m.heads + 2.0 * m.kv_heads) * m.head_dim * hidden;
  const double mlp =
      3.0 * hidden * std::max(double{1} * m.experts * m.moe_ffn, double{1} * m.dense_ffn);
  return m.layers * (attention + mlp + m.experts * hidden) + 2.0 * m.vocab * hidden;
}

void check_experts(const ModelConfig& m, Violations& out) {
  if (m.topk > m.experts)
    out.add("model.topk", m.topk, fmt::format("more than the {} experts", m.experts),
            fmt::format("give at most {}", m.experts));
  if (m.topk == 1 && m.norm_topk_prob)
    out.add("model.topk", m.topk,
            "renormalising a single probability makes it 1, so the router would get no gradient",
            "set model.norm_topk_prob=false, or model.topk to 2 or more");
  const bool kinds_known = m.moe_pattern.empty()
                               ? m.first_k_dense <= m.layers
                               : m.moe_pattern.size() == static_cast<std::size_t>(m.layers);
  if (kinds_known && moe_layers(m) == 0)
    out.add("model.experts", m.experts,
            "first_k_dense, moe_every and moe_pattern leave no MoE layer to hold them",
            "set model.experts=0 for a dense model, or make a layer MoE");
}

}  // namespace

void check_model(const RunConfig& config, Violations& out) {
  const ModelConfig& m = config.model;
  if (m.heads % m.kv_heads != 0)
    out.add("model.kv_heads", m.kv_heads, fmt::format("does not divide model.heads = {}", m.heads),
            fmt::format("give a divisor of {}", m.heads));
  if (m.head_dim % 2 != 0)
    out.add("model.head_dim", m.head_dim,
            "rotary positions turn pairs of elements, so it must be even",
            fmt::format("give {} or {}", m.head_dim - 1 == 0 ? 4 : m.head_dim - 1, m.head_dim + 1));
  if (m.moe_pattern.empty() && m.first_k_dense > m.layers)
    out.add("model.first_k_dense", m.first_k_dense,
            fmt::format("more than the {} layers", m.layers),
            fmt::format("give at most {}", m.layers));
  const std::size_t entries = m.moe_pattern.size();
  if (entries != 0 && entries != static_cast<std::size_t>(m.layers))
    out.add("model.moe_pattern", fmt::format("[{} entries]", entries),
            fmt::format("needs one entry for each of the {} layers", m.layers),
            fmt::format("give {} entries, or none", m.layers));
  if (m.experts > 0)
    check_experts(m, out);
  else if (std::count(m.moe_pattern.begin(), m.moe_pattern.end(), 1) > 0)
    out.add("model.moe_pattern", "[.. 1 ..]", "names MoE layers, but model.experts is 0",
            "set model.experts, or write 0 for every layer");
}

void check_sizes(const RunConfig& config, Violations& out) {
  const ModelConfig& m = config.model;
  const auto fits = [&](const char* key, int value, std::int64_t size, const char* what) {
    if (size > kInt32Max)
      out.add(key, value,
              fmt::format("makes {} {} long, beyond the {} of a matrix", what, size, kInt32Max),
              "make it smaller");
  };
  const std::int64_t qkv_heads = std::int64_t{m.heads} + 2 * std::int64_t{m.kv_heads};
  fits("model.head_dim", m.head_dim, qkv_heads * m.head_dim, "the query, key and value projection");
  const std::int64_t tokens = config.tokens_per_microbatch();
  const bool single = config.train.micro_batch == 1;  // then only the sequence can be shorter
  const char* key = single ? "train.seq_len" : "train.micro_batch";
  const int value = single ? config.train.seq_len : config.train.micro_batch;
  fits(key, value, tokens, "the token dimension of a micro-batch");
  if (m.experts > 0 && tokens <= kInt32Max) {
    // In the worst case every token of all ep peers goes to the experts of one rank.
    const std::int64_t per_token = std::min(m.topk, m.experts / std::max(1, config.parallel.ep));
    fits(key, value, tokens * m.topk, "the routed rows of a micro-batch");
    if (tokens * m.topk <= kInt32Max)
      fits("parallel.ep", config.parallel.ep,
           tokens * config.parallel.ep * std::max<std::int64_t>(1, per_token),
           "the rows one rank may receive");
  }
  constexpr double kMostParameters = 1e17;  // bytes of all of them stay well inside 64 bits
  if (parameters(m) > kMostParameters)
    out.add("model.layers", m.layers,
            fmt::format("the model has about {:.1e} parameters, more than {:.0e}", parameters(m),
                        kMostParameters),
            "make it smaller");
}

}  // namespace tandem::config
