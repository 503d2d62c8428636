#include "tandem/ops/cost.h"

#include <initializer_list>

namespace tandem::ops {
namespace {

constexpr double kFma = 2.0;  // a multiply and an add

// Bytes of these tensors together, each moved once.
double moved(std::initializer_list<View> views) {
  double sum = 0;
  for (const View& view : views) sum += static_cast<double>(view.bytes());
  return sum;
}

double product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return kFma * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// An op without products that works on `main` and moves `bytes`.
OpCost pass(std::string_view name, const View& main, double bytes) {
  return {.name = name, .flops = 0, .bytes = bytes, .rows = main.rows, .cols = main.cols};
}

std::int64_t q_width(const HeadShape& shape) {
  return shape.heads * shape.head_dim;
}

// `products` of [seq_len, seq_len] by heads; the mask leaves half of them.
OpCost attention(std::string_view name, double products, const View& qkv, const HeadShape& shape,
                 double bytes) {
  const double one = product(qkv.rows, shape.seq_len, q_width(shape)) / 2.0;
  return {name, products * one, bytes, qkv.rows, q_width(shape), shape.seq_len};
}

// The q and k parts of qkv, moved once.
double qk_bytes(const View& qkv, const HeadShape& shape) {
  const std::int64_t width = (shape.heads + shape.kv_heads) * shape.head_dim;
  return static_cast<double>(qkv.rows * width) * static_cast<double>(size_of(qkv.dtype));
}

}  // namespace

OpCost cost(const Gemm& op) {
  const std::int64_t inner = op.trans_a ? op.a.rows : op.a.cols;
  const double bytes = moved({op.a, op.b, op.c}) + (op.accumulate ? moved({op.c}) : 0.0);
  return {"gemm", product(op.c.rows, op.c.cols, inner), bytes, op.c.rows, op.c.cols, inner};
}
OpCost cost(const GroupedGemm& op) {
  return {"grouped_gemm",
          product(op.x.rows, op.y.cols, op.x.cols),
          moved({op.x, op.w, op.y, op.offsets}),
          op.x.rows,
          op.y.cols,
          op.x.cols};
}
OpCost cost(const GroupedGemmWeight& op) {
  return {"grouped_gemm_weight",
          product(op.x.rows, op.d_y.cols, op.x.cols),
          moved({op.d_y, op.x, op.d_w, op.offsets}) + (op.accumulate ? moved({op.d_w}) : 0.0),
          op.d_y.cols,
          op.x.cols,
          op.x.rows};
}

OpCost cost(const RmsNormFwd& op) {
  return pass("rms_norm_fwd", op.x, moved({op.x, op.w, op.y, op.rstd}));
}
OpCost cost(const RmsNormApply& op) {
  return pass("rms_norm_apply", op.x, moved({op.x, op.w, op.rstd, op.y}));
}
OpCost cost(const RmsNormBwd& op) {
  const double add = op.add.data == nullptr ? 0.0 : moved({op.add});
  return pass("rms_norm_bwd", op.x,
              moved({op.d_y, op.x, op.w, op.rstd, op.d_x, op.d_w, op.d_w}) + add);
}

OpCost cost(const EmbeddingFwd& op) {
  return pass("embedding_fwd", op.out, moved({op.ids, op.out, op.out}));  // a table row per token
}
OpCost cost(const EmbeddingBwd& op) {
  const View rows{nullptr, op.d_table.dtype, op.d_out.rows, op.d_out.cols};
  return pass("embedding_bwd", op.d_out, moved({op.ids, op.d_out, rows, rows}));
}

OpCost cost(const QkNormFwd& op) {
  return pass("qk_norm_fwd", op.raw,
              2.0 * qk_bytes(op.qkv, op.shape) + moved({op.raw, op.rstd, op.w_q, op.w_k}));
}
OpCost cost(const QkNormBwd& op) {
  return pass("qk_norm_bwd", op.raw,
              2.0 * qk_bytes(op.d_qkv, op.shape) + moved({op.raw, op.rstd, op.w_q, op.w_k}) +
                  2.0 * moved({op.d_w_q, op.d_w_k}));
}
OpCost cost(const Rope& op) {
  return pass(op.inverse ? "rope_inverse" : "rope", op.qkv, 2.0 * qk_bytes(op.qkv, op.shape));
}
OpCost cost(const AttentionFwd& op) {
  return attention("attention_fwd", 2.0, op.qkv, op.shape, moved({op.qkv, op.out, op.lse}));
}
OpCost cost(const AttentionBwd& op) {
  return attention("attention_bwd", 5.0, op.qkv, op.shape,
                   moved({op.qkv, op.out, op.lse, op.d_out, op.d_qkv}));
}

OpCost cost(const RouterFwd& op) {
  return pass("router_fwd", op.logits, moved({op.logits, op.probs, op.chosen, op.weights, op.z}));
}
OpCost cost(const RouterBwd& op) {
  const double load = op.load.data == nullptr ? 0.0 : moved({op.load});
  return pass("router_bwd", op.d_logits,
              moved({op.d_weights, op.probs, op.chosen, op.weights, op.z, op.d_logits}) + load);
}
OpCost cost(const RouterLoss& op) {
  const double again = op.accumulate ? moved({op.prob_sum}) : 0.0;
  return pass("router_loss", op.probs,
              moved({op.probs, op.z, op.load, op.prob_sum, op.out}) + again);
}

OpCost cost(const PermutePlan& op) {
  return pass("permute_plan", op.chosen, moved({op.chosen, op.counts, op.rows, op.load}));
}
OpCost cost(const PermuteRows& op) {
  return pass("permute_rows", op.out, moved({op.x, op.rows, op.out}));
}
OpCost cost(const PermuteWeights& op) {
  return pass("permute_weights", op.weights, moved({op.weights, op.rows, op.out}));
}
OpCost cost(const UnpermuteSum& op) {
  const double add = op.add.data == nullptr ? 0.0 : moved({op.add});
  return pass("unpermute_sum", op.in, moved({op.in, op.rows, op.out}) + add);
}
OpCost cost(const UnpermuteWeights& op) {
  return pass("unpermute_weights", op.out, moved({op.in, op.rows, op.out}));
}
OpCost cost(const ExpertOffsets& op) {
  return pass("expert_offsets", op.counts, moved({op.counts, op.offsets}));
}

OpCost cost(const SwiGluFwd& op) {
  const double weights = op.weights.data == nullptr ? 0.0 : moved({op.weights});
  return pass("swiglu_fwd", op.act, moved({op.gate_up, op.act}) + weights);
}
OpCost cost(const SwiGluBwd& op) {
  const double weights = op.weights.data == nullptr ? 0.0 : moved({op.weights, op.d_weights});
  return pass("swiglu_bwd", op.act, moved({op.d_act, op.gate_up, op.d_gate_up, op.act}) + weights);
}

OpCost cost(const CrossEntropy& op) {
  const double gradient = op.d_logits.data == nullptr ? 0.0 : moved({op.logits, op.d_logits});
  return pass("cross_entropy", op.logits, moved({op.logits, op.labels, op.loss}) + gradient);
}

OpCost cost(const Add& op) {
  return pass("add", op.out, moved({op.a, op.b, op.out}));
}
OpCost cost(const AddTo& op) {
  return pass("add_to", op.to, moved({op.from, op.to, op.to}));
}
OpCost cost(const SplitHalves& op) {
  return pass("split_halves", op.from, moved({op.from, op.to}));
}
OpCost cost(const Cast& op) {
  return pass("cast", op.from, moved({op.from, op.to}));
}
OpCost cost(const Sum& op) {
  return pass("sum", op.in, moved({op.in, op.out, op.out}));
}
OpCost cost(const SquareSum& op) {
  return pass("square_sum", op.in, moved({op.in, op.out}));
}
OpCost cost(const ClipScale& op) {
  return pass("clip_scale", op.norm, moved({op.square_sum, op.norm, op.scale}));
}
OpCost cost(const InitNormal& op) {
  return pass("init_normal", op.out, moved({op.out}));
}
OpCost cost(const AdamW& op) {
  return pass("adamw", op.master,
              2.0 * moved({op.master, op.m, op.v}) + moved({op.grad, op.param}));
}

}  // namespace tandem::ops
