// The node bodies, one function per kind and phase; nn/bindings.cpp is the only table of them.
// Shapes and slots: model/node.h and model/slot.h. All enqueue on ctx.stream and return at once.
#pragma once

#include "tandem/nn/node_ctx.h"

namespace tandem::nn {

void embedding_fwd(const NodeCtx& ctx);
void embedding_bwd_weight(const NodeCtx& ctx);

void attention_fwd(const NodeCtx& ctx);  // with router_fwd where ctx.moe
void attention_bwd_input(const NodeCtx& ctx);
void attention_bwd_weight(const NodeCtx& ctx);

void router_fwd(const NodeCtx& ctx);  // norm, logits, top-k, permutation, counts
// Adds the gradient that came back through the experts and the router to d_h [T, H].
void router_bwd(const NodeCtx& ctx, View d_h);

void counts_fwd(const NodeCtx& ctx);
void dispatch_fwd(const NodeCtx& ctx);
void dispatch_bwd_input(const NodeCtx& ctx);
void combine_fwd(const NodeCtx& ctx);
void combine_bwd_input(const NodeCtx& ctx);

void experts_fwd(const NodeCtx& ctx);
void experts_bwd_input(const NodeCtx& ctx);
void experts_bwd_weight(const NodeCtx& ctx);

void aggregate_fwd(const NodeCtx& ctx);
void aggregate_bwd_input(const NodeCtx& ctx);

void mlp_fwd(const NodeCtx& ctx);
void mlp_bwd_input(const NodeCtx& ctx);
void mlp_bwd_weight(const NodeCtx& ctx);

void head_fwd(const NodeCtx& ctx);  // loss; in training also its gradient
void head_bwd_input(const NodeCtx& ctx);

}  // namespace tandem::nn
