// The second half of a MoE layer's attention node: norm, router, permutation into expert order.
#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

enum RouterSaved : std::size_t { kRstd, kProbs, kChosen, kWeights, kRows, kZ, kLoad };
enum Pooled : std::size_t { kPooledCounts, kProbSum };
enum RoutedRows : std::size_t { kRoutedRows, kRoutedWeights };

double moe_layers(const ModelConfig& model) {
  int count = 0;
  for (int layer = 0; layer < model.layers; ++layer) count += model.is_moe(layer) ? 1 : 0;
  return count;
}

// Factor of load[e] in dL/dprobs[t, e]. Per layer the loss is
//   coef E / (topk T^2) sum_e load_e prob_sum_e;
// pooled it is coef E / (L T)^2 times the same sum of loads and probabilities of all L layers.
float aux_grad_scale(const NodeCtx& ctx) {
  const auto tokens = static_cast<double>(ctx.dims.tokens);
  const auto experts = static_cast<double>(ctx.dims.experts);
  const double scale = ctx.model.aux_loss_coef * experts * static_cast<double>(ctx.aux_scale);
  if (ctx.model.aux_loss == AuxLossKind::kPerLayer)
    return static_cast<float>(scale / (static_cast<double>(ctx.dims.topk) * tokens * tokens));
  const double pooled_tokens = moe_layers(ctx.model) * tokens;
  return static_cast<float>(scale / (pooled_tokens * pooled_tokens));
}

float z_grad_scale(const NodeCtx& ctx) {
  return static_cast<float>(ctx.model.z_loss_coef * static_cast<double>(ctx.aux_scale) /
                            static_cast<double>(ctx.dims.tokens));
}

// The load that the auxiliary loss pulls on; null data without that loss.
View aux_load(const NodeCtx& ctx) {
  if (ctx.model.aux_loss_coef == 0.0) return {};
  if (ctx.model.aux_loss == AuxLossKind::kPooled)
    return ctx.in(SlotKind::kPooledLoad, kPooledCounts);
  return ctx.in(SlotKind::kRouterSaved, kLoad);
}

void losses(const NodeCtx& ctx) {
  const View load = ctx.out(SlotKind::kRouterSaved, kLoad);
  ops::RouterLoss loss{.probs = ctx.out(SlotKind::kRouterSaved, kProbs),
                       .z = ctx.out(SlotKind::kRouterSaved, kZ),
                       .load = load,
                       .prob_sum = {},
                       .out = ctx.aux,
                       .accumulate = false};
  if (ctx.aux.data == nullptr) loss.out = ctx.scratch.take(DType::kF32, 2, 1);
  if (ctx.model.aux_loss == AuxLossKind::kPerLayer) {
    loss.prob_sum = ctx.scratch.take(DType::kF32, ctx.dims.experts, 1);
  } else {
    const View pooled = ctx.out(SlotKind::kPooledLoad, kPooledCounts);
    loss.accumulate = !ctx.starts_afresh(SlotKind::kPooledLoad);
    if (loss.accumulate) {
      launch(ctx.stream, ops::AddTo{load, pooled});
    } else {
      copy(ctx, load, pooled);
    }
    loss.load = pooled;
    loss.prob_sum = ctx.out(SlotKind::kPooledLoad, kProbSum);
  }
  launch(ctx.stream, loss);
}

// Adds d_logits W_r to d_normed [T, H] D and d_logits^T normed to the router's gradient. The
// router runs in fp32: where the storage is narrower, d_logits enters the products as two halves
// of the storage dtype, which together hold twice its digits; the other operands are stored ones.
void logits_bwd(const NodeCtx& ctx, View d_logits, View d_normed) {
  const ModelDims& dims = ctx.dims;
  const View normed = normed_again(ctx, ctx.in(SlotKind::kH), ParamKind::kMlpNorm,
                                   ctx.in(SlotKind::kRouterSaved, kRstd));
  const View weight = ctx.param(ParamKind::kRouter), d_weight = ctx.grad(ParamKind::kRouter);
  const View from_logits = scratch(ctx, dims.tokens, dims.hidden);
  if (dims.dtype == DType::kF32) {
    linear_bwd_weight(ctx, d_logits, normed, d_weight);
    linear_bwd_input(ctx, d_logits, weight, from_logits);
  } else {
    const View halves = scratch(ctx, dims.tokens, 2 * dims.experts);
    launch(ctx.stream, ops::SplitHalves{d_logits, halves});

    const View both = ctx.scratch.take(DType::kF32, 2 * dims.experts, dims.hidden);
    launch(ctx.stream, ops::Gemm{.a = halves, .b = normed, .c = both, .trans_a = true});
    for (const std::int64_t half : {0, 1})
      launch(ctx.stream, ops::AddTo{both.slice(half * dims.experts, dims.experts), d_weight});

    const View twice = scratch(ctx, 2 * dims.experts, dims.hidden);
    for (const std::int64_t half : {0, 1})
      copy(ctx, weight, twice.slice(half * dims.experts, dims.experts));
    linear_bwd_input(ctx, halves, twice, from_logits);
  }
  launch(ctx.stream, ops::Add{d_normed, from_logits, d_normed});
}

}  // namespace

void router_fwd(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View normed = scratch(ctx, dims.tokens, dims.hidden);
  launch(ctx.stream, ops::RmsNormFwd{ctx.out(SlotKind::kH), ctx.param(ParamKind::kMlpNorm), normed,
                                     ctx.out(SlotKind::kRouterSaved, kRstd), norm_eps(ctx)});

  const View logits = ctx.scratch.take(DType::kF32, dims.tokens, dims.experts);
  const View chosen = ctx.out(SlotKind::kRouterSaved, kChosen);
  const View weights = ctx.out(SlotKind::kRouterSaved, kWeights);
  linear(ctx, normed, ctx.param(ParamKind::kRouter), logits);
  launch(ctx.stream, ops::RouterFwd{.logits = logits,
                                    .probs = ctx.out(SlotKind::kRouterSaved, kProbs),
                                    .chosen = chosen,
                                    .weights = weights,
                                    .z = ctx.out(SlotKind::kRouterSaved, kZ),
                                    .renormalise = ctx.model.norm_topk_prob});

  const View rows = ctx.out(SlotKind::kRouterSaved, kRows);
  launch(ctx.stream, ops::PermutePlan{.chosen = chosen,
                                      .counts = ctx.out(SlotKind::kCountsSend),
                                      .rows = rows,
                                      .load = ctx.out(SlotKind::kRouterSaved, kLoad)});
  launch(ctx.stream, ops::PermuteRows{normed, rows, ctx.out(SlotKind::kPermuted, kRoutedRows)});
  launch(ctx.stream,
         ops::PermuteWeights{weights, rows, ctx.out(SlotKind::kPermuted, kRoutedWeights)});
  losses(ctx);
}

void router_bwd(const NodeCtx& ctx, View d_h) {
  const ModelDims& dims = ctx.dims;
  const View rows = ctx.in(SlotKind::kRouterSaved, kRows);
  const View d_weights = ctx.scratch.take(DType::kF32, dims.tokens, dims.topk);
  launch(ctx.stream,
         ops::UnpermuteWeights{ctx.in(SlotKind::kDPermuted, kRoutedWeights), rows, d_weights});
  const View d_logits = ctx.scratch.take(DType::kF32, dims.tokens, dims.experts);
  launch(ctx.stream, ops::RouterBwd{.d_weights = d_weights,
                                    .probs = ctx.in(SlotKind::kRouterSaved, kProbs),
                                    .chosen = ctx.in(SlotKind::kRouterSaved, kChosen),
                                    .weights = ctx.in(SlotKind::kRouterSaved, kWeights),
                                    .z = ctx.in(SlotKind::kRouterSaved, kZ),
                                    .load = aux_load(ctx),
                                    .d_logits = d_logits,
                                    .aux_scale = aux_grad_scale(ctx),
                                    .z_scale = z_grad_scale(ctx),
                                    .renormalise = ctx.model.norm_topk_prob});

  const View d_normed = scratch(ctx, dims.tokens, dims.hidden);
  launch(ctx.stream, ops::UnpermuteSum{.in = ctx.in(SlotKind::kDPermuted, kRoutedRows),
                                       .rows = rows,
                                       .add = {},
                                       .out = d_normed});
  logits_bwd(ctx, d_logits, d_normed);
  launch(ctx.stream, ops::RmsNormBwd{.d_y = d_normed,
                                     .x = ctx.in(SlotKind::kH),
                                     .w = ctx.param(ParamKind::kMlpNorm),
                                     .rstd = ctx.in(SlotKind::kRouterSaved, kRstd),
                                     .add = d_h,
                                     .d_x = d_h,
                                     .d_w = ctx.grad(ParamKind::kMlpNorm)});
}

}  // namespace tandem::nn
