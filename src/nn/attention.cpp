#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

// Tensors of the slots, as model/slot.h lists them.
enum AttnSaved : std::size_t { kRstd, kQkv, kQkvRaw, kQkRstd, kOut, kLse };
enum AttnGrad : std::size_t { kDQkv, kDResidual };

ops::HeadShape head_shape(const ModelDims& dims) {
  return {dims.heads, dims.kv_heads, dims.head_dim, dims.seq_len};
}

void qk_norm_fwd(const NodeCtx& ctx, View qkv) {
  if (ctx.model.qk_norm == QkNorm::kNone) return;
  launch(ctx.stream, ops::QkNormFwd{.qkv = qkv,
                                    .raw = ctx.out(SlotKind::kAttnSaved, kQkvRaw),
                                    .w_q = ctx.param(ParamKind::kQNorm),
                                    .w_k = ctx.param(ParamKind::kKNorm),
                                    .rstd = ctx.out(SlotKind::kAttnSaved, kQkRstd),
                                    .shape = head_shape(ctx.dims),
                                    .full = ctx.model.qk_norm == QkNorm::kFull,
                                    .eps = norm_eps(ctx)});
}

void qk_norm_bwd(const NodeCtx& ctx, View d_qkv) {
  if (ctx.model.qk_norm == QkNorm::kNone) return;
  launch(ctx.stream, ops::QkNormBwd{.d_qkv = d_qkv,
                                    .raw = ctx.in(SlotKind::kAttnSaved, kQkvRaw),
                                    .w_q = ctx.param(ParamKind::kQNorm),
                                    .w_k = ctx.param(ParamKind::kKNorm),
                                    .rstd = ctx.in(SlotKind::kAttnSaved, kQkRstd),
                                    .d_w_q = ctx.grad(ParamKind::kQNorm),
                                    .d_w_k = ctx.grad(ParamKind::kKNorm),
                                    .shape = head_shape(ctx.dims),
                                    .full = ctx.model.qk_norm == QkNorm::kFull});
}

// d_qkv [T, qkv_width] of the projection's output, from d_out [T, q_width].
void core_bwd(const NodeCtx& ctx, View d_out, View d_qkv) {
  launch(ctx.stream, ops::AttentionBwd{.qkv = ctx.in(SlotKind::kAttnSaved, kQkv),
                                       .out = ctx.in(SlotKind::kAttnSaved, kOut),
                                       .lse = ctx.in(SlotKind::kAttnSaved, kLse),
                                       .d_out = d_out,
                                       .d_qkv = d_qkv,
                                       .shape = head_shape(ctx.dims)});
  launch(ctx.stream, ops::Rope{d_qkv, head_shape(ctx.dims), ctx.model.rope_theta, true});
  qk_norm_bwd(ctx, d_qkv);
}

// Gradient of the residual stream after attention, complete.
void residual_grad(const NodeCtx& ctx, View d_h) {
  if (!ctx.moe) return copy(ctx, ctx.in(SlotKind::kDH), d_h);
  copy(ctx, ctx.in(SlotKind::kDx, 0, 1), d_h);
  router_bwd(ctx, d_h);
}

}  // namespace

void attention_fwd(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View x = ctx.in(SlotKind::kX), h = ctx.out(SlotKind::kH);
  const View qkv = ctx.out(SlotKind::kAttnSaved, kQkv), out = ctx.out(SlotKind::kAttnSaved, kOut);

  const View normed = scratch(ctx, dims.tokens, dims.hidden);
  launch(ctx.stream, ops::RmsNormFwd{x, ctx.param(ParamKind::kAttnNorm), normed,
                                     ctx.out(SlotKind::kAttnSaved, kRstd), norm_eps(ctx)});
  linear(ctx, normed, ctx.param(ParamKind::kQkv), qkv);
  qk_norm_fwd(ctx, qkv);
  launch(ctx.stream, ops::Rope{qkv, head_shape(dims), ctx.model.rope_theta, false});
  launch(ctx.stream,
         ops::AttentionFwd{qkv, out, ctx.out(SlotKind::kAttnSaved, kLse), head_shape(dims)});

  const View projected = scratch(ctx, dims.tokens, dims.hidden);
  linear(ctx, out, ctx.param(ParamKind::kAttnOut), projected);
  launch(ctx.stream, ops::Add{x, projected, h});
  if (ctx.moe) router_fwd(ctx);
}

void attention_bwd_input(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View d_qkv = ctx.out(SlotKind::kAttnGrad, kDQkv);
  const View d_h = ctx.out(SlotKind::kAttnGrad, kDResidual);
  residual_grad(ctx, d_h);

  const View d_out = scratch(ctx, dims.tokens, dims.q_width());
  linear_bwd_input(ctx, d_h, ctx.param(ParamKind::kAttnOut), d_out);
  core_bwd(ctx, d_out, d_qkv);

  const View d_normed = scratch(ctx, dims.tokens, dims.hidden);
  linear_bwd_input(ctx, d_qkv, ctx.param(ParamKind::kQkv), d_normed);
  launch(ctx.stream, ops::RmsNormBwd{.d_y = d_normed,
                                     .x = ctx.in(SlotKind::kX),
                                     .w = ctx.param(ParamKind::kAttnNorm),
                                     .rstd = ctx.in(SlotKind::kAttnSaved, kRstd),
                                     .add = d_h,
                                     .d_x = ctx.out(SlotKind::kDx),
                                     .d_w = ctx.grad(ParamKind::kAttnNorm)});
}

void attention_bwd_weight(const NodeCtx& ctx) {
  linear_bwd_weight(ctx, ctx.in(SlotKind::kAttnGrad, kDResidual),
                    ctx.in(SlotKind::kAttnSaved, kOut), ctx.grad(ParamKind::kAttnOut));
  const View normed = normed_again(ctx, ctx.in(SlotKind::kX), ParamKind::kAttnNorm,
                                   ctx.in(SlotKind::kAttnSaved, kRstd));
  linear_bwd_weight(ctx, ctx.in(SlotKind::kAttnGrad, kDQkv), normed, ctx.grad(ParamKind::kQkv));
}

}  // namespace tandem::nn
