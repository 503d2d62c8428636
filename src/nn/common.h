// What several node bodies share. Host thread of the executor; everything is enqueued.
#pragma once

#include "tandem/base/error.h"
#include "tandem/nn/node_ctx.h"
#include "tandem/ops/launch.h"

namespace tandem::nn {

// Scratch of the storage dtype, [rows, cols].
inline View scratch(const NodeCtx& ctx, std::int64_t rows, std::int64_t cols) {
  return ctx.scratch.take(ctx.dims.dtype, rows, cols);
}

// y = x W^T for a weight W [out, in].
inline void linear(const NodeCtx& ctx, View x, View w, View y) {
  launch(ctx.stream, ops::Gemm{.a = x, .b = w, .c = y, .trans_b = true});
}
// d_x = d_y W.
inline void linear_bwd_input(const NodeCtx& ctx, View d_y, View w, View d_x) {
  launch(ctx.stream, ops::Gemm{.a = d_y, .b = w, .c = d_x});
}
// d_W (f32) += d_y^T x.
inline void linear_bwd_weight(const NodeCtx& ctx, View d_y, View x, View d_w) {
  launch(ctx.stream, ops::Gemm{.a = d_y, .b = x, .c = d_w, .trans_a = true, .accumulate = true});
}

inline const Routing& routing(const NodeCtx& ctx) {
  TANDEM_CHECK(ctx.routing != nullptr, "layer {}: the token counts are not known yet", ctx.layer);
  return *ctx.routing;
}

inline void copy(const NodeCtx& ctx, View from, View to) {
  ctx.device.copy(ctx.stream, to.data, from.data, from.bytes());
}

// The input of a norm normalised again, in scratch: kept statistics are cheaper than kept rows.
inline View normed_again(const NodeCtx& ctx, View x, ParamKind weight, View rstd) {
  const View normed = scratch(ctx, x.rows, x.cols);
  launch(ctx.stream, ops::RmsNormApply{x, ctx.param(weight), rstd, normed});
  return normed;
}

inline float norm_eps(const NodeCtx& ctx) {
  return static_cast<float>(ctx.model.norm_eps);
}

}  // namespace tandem::nn
