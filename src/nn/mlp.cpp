#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

enum MlpSaved : std::size_t { kRstd, kGateUp };
enum MlpGrad : std::size_t { kDGateUp, kAct };

}  // namespace

void mlp_fwd(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View h = ctx.in(SlotKind::kH), gate_up = ctx.out(SlotKind::kMlpSaved, kGateUp);
  const View normed = scratch(ctx, dims.tokens, dims.hidden);
  launch(ctx.stream, ops::RmsNormFwd{h, ctx.param(ParamKind::kMlpNorm), normed,
                                     ctx.out(SlotKind::kMlpSaved, kRstd), norm_eps(ctx)});
  linear(ctx, normed, ctx.param(ParamKind::kMlpGateUp), gate_up);

  const View act = scratch(ctx, dims.tokens, dims.dense_ffn);
  launch(ctx.stream, ops::SwiGluFwd{gate_up, {}, act});
  const View down = scratch(ctx, dims.tokens, dims.hidden);
  linear(ctx, act, ctx.param(ParamKind::kMlpDown), down);
  launch(ctx.stream, ops::Add{h, down, ctx.out(SlotKind::kX, 0, 1)});
}

void mlp_bwd_input(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View d_y = ctx.in(SlotKind::kDx, 0, 1);
  const View d_gate_up = ctx.out(SlotKind::kMlpGrad, kDGateUp);
  const View d_act = scratch(ctx, dims.tokens, dims.dense_ffn);
  linear_bwd_input(ctx, d_y, ctx.param(ParamKind::kMlpDown), d_act);
  launch(ctx.stream, ops::SwiGluBwd{.d_act = d_act,
                                    .gate_up = ctx.in(SlotKind::kMlpSaved, kGateUp),
                                    .weights = {},
                                    .d_gate_up = d_gate_up,
                                    .act = ctx.out(SlotKind::kMlpGrad, kAct),
                                    .d_weights = {}});

  const View d_normed = scratch(ctx, dims.tokens, dims.hidden);
  linear_bwd_input(ctx, d_gate_up, ctx.param(ParamKind::kMlpGateUp), d_normed);
  launch(ctx.stream, ops::RmsNormBwd{.d_y = d_normed,
                                     .x = ctx.in(SlotKind::kH),
                                     .w = ctx.param(ParamKind::kMlpNorm),
                                     .rstd = ctx.in(SlotKind::kMlpSaved, kRstd),
                                     .add = d_y,
                                     .d_x = ctx.out(SlotKind::kDH),
                                     .d_w = ctx.grad(ParamKind::kMlpNorm)});
}

void mlp_bwd_weight(const NodeCtx& ctx) {
  linear_bwd_weight(ctx, ctx.in(SlotKind::kDx, 0, 1), ctx.in(SlotKind::kMlpGrad, kAct),
                    ctx.grad(ParamKind::kMlpDown));
  const View normed = normed_again(ctx, ctx.in(SlotKind::kH), ParamKind::kMlpNorm,
                                   ctx.in(SlotKind::kMlpSaved, kRstd));
  linear_bwd_weight(ctx, ctx.in(SlotKind::kMlpGrad, kDGateUp), normed,
                    ctx.grad(ParamKind::kMlpGateUp));
}

}  // namespace tandem::nn
