#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {

void embedding_fwd(const NodeCtx& ctx) {
  launch(ctx.stream, ops::EmbeddingFwd{ctx.batch.tokens, ctx.param(ParamKind::kEmbedding),
                                       ctx.out(SlotKind::kX)});
}

void embedding_bwd_weight(const NodeCtx& ctx) {
  launch(ctx.stream, ops::EmbeddingBwd{ctx.batch.tokens, ctx.in(SlotKind::kDx),
                                       ctx.grad(ParamKind::kEmbedding)});
}

}  // namespace tandem::nn
