#include "tandem/model/cost.h"

namespace tandem {
namespace {

constexpr double kFma = 2.0;             // a multiply and an add
constexpr double kSwiGluMatrices = 3.0;  // gate, up, down
constexpr double kPasses = 3.0;          // forward, gradient of the input, gradient of the weight

// Multiply-adds of one token, forward, in the four parts every count is made of.
double projections(const ModelDims& d) {
  return static_cast<double>(d.hidden) * static_cast<double>(d.qkv_width() + d.q_width());
}
// QK^T and PV; the causal mask leaves half of the seq_len keys on average.
double attention_core(const ModelDims& d) {
  return static_cast<double>(d.seq_len) * static_cast<double>(d.q_width());
}
double swiglu(const ModelDims& d, std::int64_t ffn) {
  return kSwiGluMatrices * static_cast<double>(d.hidden) * static_cast<double>(ffn);
}
double head(const ModelDims& d) {
  return static_cast<double>(d.hidden) * static_cast<double>(d.vocab);
}
double router(const ModelDims& d) {
  return static_cast<double>(d.hidden) * static_cast<double>(d.experts);
}

// The core has no weight: both halves of its backward are in bwd_input. So are the router's, whose
// small weight gradient is taken where its input is.
double attention_node(const ModelDims& d, Phase phase, bool moe) {
  const double tail = attention_core(d) + (moe ? router(d) : 0.0);
  switch (phase) {
    case Phase::kFwd:
      return projections(d) + tail;
    case Phase::kBwdInput:
      return projections(d) + 2.0 * tail;
    case Phase::kBwdWeight:
      return projections(d);
  }
  return 0.0;
}

}  // namespace

double flops_per_token(const RunConfig& config) {
  const ModelDims d = make_dims(config);
  double madds = head(d);
  for (int layer = 0; layer < config.model.layers; ++layer) {
    madds += projections(d) + attention_core(d);
    madds += config.model.is_moe(layer) ? static_cast<double>(d.topk) * swiglu(d, d.moe_ffn)
                                        : swiglu(d, d.dense_ffn);
  }
  return kPasses * kFma * madds;
}

double node_flops(NodeKind kind, Phase phase, bool moe, const ModelDims& d, double received) {
  const auto tokens = static_cast<double>(d.tokens);
  switch (kind) {
    case NodeKind::kAttention:
      return kFma * tokens * attention_node(d, phase, moe);
    case NodeKind::kExperts:
      return kFma * received * swiglu(d, d.moe_ffn);
    case NodeKind::kMlp:
      return kFma * tokens * swiglu(d, d.dense_ffn);
    case NodeKind::kHead:
      return phase == Phase::kFwd ? kPasses * kFma * tokens * head(d) : 0.0;
    case NodeKind::kEmbedding:
    case NodeKind::kCounts:
    case NodeKind::kDispatch:
    case NodeKind::kCombine:
    case NodeKind::kAggregate:
      return 0.0;
  }
  return 0.0;
}

double alltoall_bytes(const ModelDims& d, double rows) {
  const double remote = static_cast<double>(d.ep - 1) / static_cast<double>(d.ep);
  return rows * remote * static_cast<double>(d.hidden) * static_cast<double>(size_of(d.dtype));
}

}  // namespace tandem
