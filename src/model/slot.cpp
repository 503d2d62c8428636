#include "tandem/model/slot.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: one cache line, and any vector load

constexpr std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class LayoutBuilder {
 public:
  LayoutBuilder& add(std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols = 1) {
    layout_.tensors.push_back({name, dtype, rows, cols, layout_.bytes});
    layout_.bytes += align_up(rows * cols * static_cast<std::int64_t>(size_of(dtype)));
    return *this;
  }
  SlotLayout done() { return std::move(layout_); }

 private:
  SlotLayout layout_;
};

SlotLayout attn_saved(const ModelDims& d, QkNorm qk_norm) {
  const std::int64_t raw_rows = qk_norm == QkNorm::kNone ? 0 : d.tokens;
  const std::int64_t rstds = qk_norm == QkNorm::kPerHead ? d.heads + d.kv_heads : 2;
  return LayoutBuilder()
      .add("rstd", DType::kF32, d.tokens)
      .add("qkv", d.dtype, d.tokens, d.qkv_width())
      .add("qkv_raw", d.dtype, raw_rows, d.q_width() + d.kv_width())
      .add("qk_rstd", DType::kF32, raw_rows, rstds)
      .add("out", d.dtype, d.tokens, d.q_width())
      .add("lse", DType::kF32, d.tokens, d.heads)
      .done();
}

SlotLayout router_saved(const ModelDims& d) {
  return LayoutBuilder()
      .add("rstd", DType::kF32, d.tokens)
      .add("probs", DType::kF32, d.tokens, d.experts)
      .add("chosen", DType::kI32, d.tokens, d.topk)
      .add("weights", DType::kF32, d.tokens, d.topk)
      .add("rows", DType::kI32, d.tokens, d.topk)
      .add("z", DType::kF32, d.tokens)
      .add("load", DType::kF32, d.experts)
      .done();
}

SlotLayout rows_and_weights(const ModelDims& d, std::int64_t rows) {
  return LayoutBuilder()
      .add("rows", d.dtype, rows, d.hidden)
      .add("weights", DType::kF32, rows)
      .done();
}

// What the weight gradient of a SwiGLU block of `rows` rows and inner size `ffn` needs.
SlotLayout swiglu_grad(const ModelDims& d, std::int64_t rows, std::int64_t ffn) {
  return LayoutBuilder()
      .add("d_gate_up", d.dtype, rows, 2 * ffn)
      .add("act", d.dtype, rows, ffn)
      .done();
}

}  // namespace

ModelDims make_dims(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const int ep = config.parallel.ep;
  if (ep < 1 || model.experts % ep != 0)
    throw_error(ExitCode::kUsage,
                "model.experts = {} is not divisible by parallel.ep = {}; choose an ep that "
                "divides the experts",
                model.experts, ep);
  const std::int64_t sequences = config.train.micro_batch, seq_len = config.train.seq_len;
  return {.tokens = sequences * seq_len,
          .sequences = sequences,
          .seq_len = seq_len,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .dense_ffn = model.dense_ffn,
          .experts = model.experts,
          .local_experts = model.experts / ep,
          .topk = model.topk,
          .moe_ffn = model.moe_ffn,
          .vocab = model.vocab,
          .ep = ep,
          .dtype = config.train.dtype};
}

SlotLayout slot_layout(SlotKind kind, const ModelDims& d, QkNorm qk_norm, std::int64_t received) {
  TANDEM_CHECK(received >= 0, "slot {}: received rows", name_of(kind));
  LayoutBuilder layout;
  switch (kind) {
    case SlotKind::kX:
    case SlotKind::kH:
    case SlotKind::kDx:
    case SlotKind::kDH:
      return layout.add("x", d.dtype, d.tokens, d.hidden).done();
    case SlotKind::kAttnSaved:
      return attn_saved(d, qk_norm);
    case SlotKind::kRouterSaved:
      return router_saved(d);
    case SlotKind::kPooledLoad:
      return layout.add("load", DType::kF32, d.experts)
          .add("prob_sum", DType::kF32, d.experts)
          .done();
    case SlotKind::kPermuted:
    case SlotKind::kDPermuted:
      return rows_and_weights(d, d.routed());
    case SlotKind::kCountsSend:
      return layout.add("counts", DType::kI32, d.experts).done();
    case SlotKind::kCountsRecv:
      return layout.add("counts", DType::kI32, d.ep, d.local_experts)
          .add("offsets", DType::kI32, d.local_experts + 1)
          .done();
    case SlotKind::kExpertIn:
    case SlotKind::kDExpertIn:
      return rows_and_weights(d, received);
    case SlotKind::kExpertSaved:
      return layout.add("gate_up", d.dtype, received, 2 * d.moe_ffn).done();
    case SlotKind::kExpertOut:
    case SlotKind::kDExpertOut:
      return layout.add("rows", d.dtype, received, d.hidden).done();
    case SlotKind::kCombined:
    case SlotKind::kDCombined:
      return layout.add("rows", d.dtype, d.routed(), d.hidden).done();
    case SlotKind::kExpertGrad:
      return swiglu_grad(d, received, d.moe_ffn);
    case SlotKind::kMlpSaved:
      return layout.add("rstd", DType::kF32, d.tokens)
          .add("gate_up", d.dtype, d.tokens, 2 * d.dense_ffn)
          .done();
    case SlotKind::kMlpGrad:
      return swiglu_grad(d, d.tokens, d.dense_ffn);
    case SlotKind::kHeadSaved:
      return layout.add("rstd", DType::kF32, d.tokens)
          .add("d_normed", d.dtype, d.tokens, d.hidden)
          .done();
    case SlotKind::kAttnGrad:
      return layout.add("d_qkv", d.dtype, d.tokens, d.qkv_width())
          .add("d_h", d.dtype, d.tokens, d.hidden)
          .done();
    case SlotKind::kGrads:
    case SlotKind::kGradsHead:
    case SlotKind::kGradsExperts:
    case SlotKind::kParams:
      break;
  }
  return {};
}

bool sized_by_counts(SlotKind kind) {
  switch (kind) {
    case SlotKind::kExpertIn:
    case SlotKind::kExpertSaved:
    case SlotKind::kExpertOut:
    case SlotKind::kDExpertOut:
    case SlotKind::kExpertGrad:
    case SlotKind::kDExpertIn:
      return true;
    default:
      return false;
  }
}

}  // namespace tandem
