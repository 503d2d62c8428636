// The nodes of the ep lane: counts, and token rows to the experts' ranks and back. Sent rows are in
// expert order, so each peer's share is one run; received rows land grouped by local expert, and
// within one expert by source rank.
#include <utility>

#include "common.h"
#include "tandem/nn/bodies.h"

namespace tandem::nn {
namespace {

enum RoutedRows : std::size_t { kRows, kWeights };
using Blocks = std::vector<std::vector<RowBlock>>;

Comm& ep_comm(const NodeCtx& ctx) {
  TANDEM_CHECK(ctx.ep != nullptr, "layer {}: an expert all-to-all needs the ep communicator",
               ctx.layer);
  return *ctx.ep;
}

// Rows of the expert-ordered side: one block per peer.
Blocks token_side(const ModelDims& dims, const Routing& routing) {
  Blocks blocks(static_cast<std::size_t>(dims.ep));
  std::int64_t begin = 0;
  std::size_t expert = 0;
  for (auto& peer : blocks) {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < dims.local_experts; ++e) rows += routing.send_counts[expert++];
    peer = {{begin, rows}};
    begin += rows;
  }
  return blocks;
}

// Rows of the experts' side: one block per (peer, local expert), expert-major.
Blocks expert_side(const ModelDims& dims, const Routing& routing) {
  Blocks blocks(static_cast<std::size_t>(dims.ep));
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < dims.local_experts; ++e) {
    for (std::size_t peer = 0; peer < blocks.size(); ++peer) {
      const auto at = peer * static_cast<std::size_t>(dims.local_experts);
      const std::int64_t rows = routing.recv_counts[at + static_cast<std::size_t>(e)];
      blocks[peer].push_back({begin, rows});
      begin += rows;
    }
  }
  TANDEM_CHECK(begin == routing.received, "received rows and their counts disagree");
  return blocks;
}

void exchange(const NodeCtx& ctx, std::vector<AllToAll::Part> parts, bool to_experts) {
  Blocks tokens = token_side(ctx.dims, routing(ctx));
  Blocks experts = expert_side(ctx.dims, routing(ctx));
  if (!to_experts) std::swap(tokens, experts);
  // Before the rows: on a network they are there at the end.
  if (ctx.alltoall_delay_us > 0.0) ctx.device.delay(ctx.stream, ctx.alltoall_delay_us);
  ep_comm(ctx).all_to_all(ctx.stream, {std::move(parts), std::move(tokens), std::move(experts)});
}

}  // namespace

void counts_fwd(const NodeCtx& ctx) {
  const ModelDims& dims = ctx.dims;
  const View counts = ctx.out(SlotKind::kCountsRecv, 0);
  const View received{counts.data, counts.dtype, counts.size(), 1};
  AllToAll plan{.parts = {{ctx.in(SlotKind::kCountsSend), received}}, .send = {}, .recv = {}};
  for (int peer = 0; peer < dims.ep; ++peer) {
    plan.send.push_back({{peer * dims.local_experts, dims.local_experts}});
    plan.recv.push_back({{peer * dims.local_experts, dims.local_experts}});
  }
  ep_comm(ctx).all_to_all(ctx.stream, std::move(plan));
  launch(ctx.stream, ops::ExpertOffsets{counts, ctx.out(SlotKind::kCountsRecv, 1)});
}

void dispatch_fwd(const NodeCtx& ctx) {
  exchange(ctx,
           {{ctx.in(SlotKind::kPermuted, kRows), ctx.out(SlotKind::kExpertIn, kRows)},
            {ctx.in(SlotKind::kPermuted, kWeights), ctx.out(SlotKind::kExpertIn, kWeights)}},
           true);
}

void dispatch_bwd_input(const NodeCtx& ctx) {
  exchange(ctx,
           {{ctx.in(SlotKind::kDExpertIn, kRows), ctx.out(SlotKind::kDPermuted, kRows)},
            {ctx.in(SlotKind::kDExpertIn, kWeights), ctx.out(SlotKind::kDPermuted, kWeights)}},
           false);
}

void combine_fwd(const NodeCtx& ctx) {
  exchange(ctx, {{ctx.in(SlotKind::kExpertOut), ctx.out(SlotKind::kCombined)}}, false);
}

void combine_bwd_input(const NodeCtx& ctx) {
  exchange(ctx, {{ctx.in(SlotKind::kDCombined), ctx.out(SlotKind::kDExpertOut)}}, true);
}

}  // namespace tandem::nn
