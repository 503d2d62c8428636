// Experts and the sum of their outputs. The routing weight is applied at the activation, so that
// coming back needs no weights and their gradient is ready beside that of the activation.
#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

enum RoutedRows : std::size_t { kRows, kWeights };
enum ExpertGrad : std::size_t { kDGateUp, kAct };
enum RouterSaved : std::size_t { kRowMap = 4 };

View offsets(const NodeCtx& ctx) {
  return ctx.in(SlotKind::kCountsRecv, 1);
}

}  // namespace

void experts_fwd(const NodeCtx& ctx) {
  const View rows = ctx.in(SlotKind::kExpertIn, kRows);
  const View gate_up = ctx.out(SlotKind::kExpertSaved);
  const View act = scratch(ctx, rows.rows, ctx.dims.moe_ffn);
  launch(ctx.stream, ops::GroupedGemm{.x = rows,
                                      .w = ctx.param(ParamKind::kExpertGateUp),
                                      .y = gate_up,
                                      .offsets = offsets(ctx),
                                      .host_rows = routing(ctx).expert_rows});
  launch(ctx.stream, ops::SwiGluFwd{gate_up, ctx.in(SlotKind::kExpertIn, kWeights), act});
  launch(ctx.stream, ops::GroupedGemm{.x = act,
                                      .w = ctx.param(ParamKind::kExpertDown),
                                      .y = ctx.out(SlotKind::kExpertOut),
                                      .offsets = offsets(ctx),
                                      .host_rows = routing(ctx).expert_rows});
}

void experts_bwd_input(const NodeCtx& ctx) {
  const View d_out = ctx.in(SlotKind::kDExpertOut);
  const View d_gate_up = ctx.out(SlotKind::kExpertGrad, kDGateUp);
  const View d_act = scratch(ctx, d_out.rows, ctx.dims.moe_ffn);
  launch(ctx.stream, ops::GroupedGemm{.x = d_out,
                                      .w = ctx.param(ParamKind::kExpertDown),
                                      .y = d_act,
                                      .offsets = offsets(ctx),
                                      .host_rows = routing(ctx).expert_rows,
                                      .trans_w = false});
  launch(ctx.stream, ops::SwiGluBwd{.d_act = d_act,
                                    .gate_up = ctx.in(SlotKind::kExpertSaved),
                                    .weights = ctx.in(SlotKind::kExpertIn, kWeights),
                                    .d_gate_up = d_gate_up,
                                    .act = ctx.out(SlotKind::kExpertGrad, kAct),
                                    .d_weights = ctx.out(SlotKind::kDExpertIn, kWeights)});
  launch(ctx.stream, ops::GroupedGemm{.x = d_gate_up,
                                      .w = ctx.param(ParamKind::kExpertGateUp),
                                      .y = ctx.out(SlotKind::kDExpertIn, kRows),
                                      .offsets = offsets(ctx),
                                      .host_rows = routing(ctx).expert_rows,
                                      .trans_w = false});
}

void experts_bwd_weight(const NodeCtx& ctx) {
  const bool accumulate = !ctx.starts_afresh(SlotKind::kGradsExperts);
  launch(ctx.stream, ops::GroupedGemmWeight{.d_y = ctx.in(SlotKind::kDExpertOut),
                                            .x = ctx.in(SlotKind::kExpertGrad, kAct),
                                            .d_w = ctx.grad(ParamKind::kExpertDown),
                                            .offsets = offsets(ctx),
                                            .host_rows = routing(ctx).expert_rows,
                                            .accumulate = accumulate});
  launch(ctx.stream, ops::GroupedGemmWeight{.d_y = ctx.in(SlotKind::kExpertGrad, kDGateUp),
                                            .x = ctx.in(SlotKind::kExpertIn, kRows),
                                            .d_w = ctx.grad(ParamKind::kExpertGateUp),
                                            .offsets = offsets(ctx),
                                            .host_rows = routing(ctx).expert_rows,
                                            .accumulate = accumulate});
}

void aggregate_fwd(const NodeCtx& ctx) {
  launch(ctx.stream, ops::UnpermuteSum{.in = ctx.in(SlotKind::kCombined),
                                       .rows = ctx.in(SlotKind::kRouterSaved, kRowMap),
                                       .add = ctx.in(SlotKind::kH),
                                       .out = ctx.out(SlotKind::kX, 0, 1)});
}

void aggregate_bwd_input(const NodeCtx& ctx) {
  launch(ctx.stream, ops::PermuteRows{.x = ctx.in(SlotKind::kDx, 0, 1),
                                      .rows = ctx.in(SlotKind::kRouterSaved, kRowMap),
                                      .out = ctx.out(SlotKind::kDCombined)});
}

}  // namespace tandem::nn
