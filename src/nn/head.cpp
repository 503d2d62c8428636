// Final norm, LM head and cross-entropy. Logits of `loss_chunk` tokens exist at a time, so their
// gradient is used up in the forward node too.
#include <algorithm>

#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

enum HeadSaved : std::size_t { kRstd, kDNormed };

struct HeadScratch {
  View logits;    // [chunk, V] f32
  View d_logits;  // their gradient, the same memory where the storage dtype is f32; training only
  View losses;    // [chunk] f32
};

HeadScratch head_scratch(const NodeCtx& ctx, std::int64_t chunk) {
  HeadScratch s;
  s.logits = ctx.scratch.take(DType::kF32, chunk, ctx.dims.vocab);
  s.losses = ctx.scratch.take(DType::kF32, chunk, 1);
  if (ctx.training)
    s.d_logits = ctx.dims.dtype == DType::kF32 ? s.logits : scratch(ctx, chunk, ctx.dims.vocab);
  return s;
}

// Tokens [begin, begin + count): loss, and in training d_normed and the head's weight gradient.
void chunk_loss(const NodeCtx& ctx, const HeadScratch& s, View normed, std::int64_t begin,
                std::int64_t count) {
  const View weight = ctx.param(ParamKind::kHead);
  const View rows = normed.slice(begin, count);
  const View logits = s.logits.slice(0, count), losses = s.losses.slice(0, count);
  const View d_logits = s.d_logits.slice(0, count);
  linear(ctx, rows, weight, logits);
  launch(ctx.stream, ops::CrossEntropy{.logits = logits,
                                       .labels = ctx.batch.labels.slice(begin, count),
                                       .loss = losses,
                                       .d_logits = d_logits,
                                       .scale = ctx.loss_scale});
  launch(ctx.stream, ops::Sum{losses, ctx.loss});
  if (!ctx.training) return;
  linear_bwd_input(ctx, d_logits, weight,
                   ctx.out(SlotKind::kHeadSaved, kDNormed).slice(begin, count));
  linear_bwd_weight(ctx, d_logits, rows, ctx.grad(ParamKind::kHead));
}

}  // namespace

void head_fwd(const NodeCtx& ctx) {
  const std::int64_t tokens = ctx.dims.tokens;
  const View normed = scratch(ctx, tokens, ctx.dims.hidden);
  const View rstd = ctx.training ? ctx.out(SlotKind::kHeadSaved, kRstd)
                                 : ctx.scratch.take(DType::kF32, tokens, 1);
  launch(ctx.stream, ops::RmsNormFwd{ctx.in(SlotKind::kX), ctx.param(ParamKind::kFinalNorm), normed,
                                     rstd, norm_eps(ctx)});
  const std::int64_t chunk = std::clamp<std::int64_t>(ctx.loss_chunk, 1, tokens);
  const HeadScratch s = head_scratch(ctx, chunk);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk)
    chunk_loss(ctx, s, normed, begin, std::min(chunk, tokens - begin));
}

void head_bwd_input(const NodeCtx& ctx) {
  launch(ctx.stream, ops::RmsNormBwd{.d_y = ctx.in(SlotKind::kHeadSaved, kDNormed),
                                     .x = ctx.in(SlotKind::kX),
                                     .w = ctx.param(ParamKind::kFinalNorm),
                                     .rstd = ctx.in(SlotKind::kHeadSaved, kRstd),
                                     .add = {},
                                     .d_x = ctx.out(SlotKind::kDx),
                                     .d_w = ctx.grad(ParamKind::kFinalNorm)});
}

}  // namespace tandem::nn
