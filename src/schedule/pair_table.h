// The order in which the host enqueues the nodes of a layer, as data: another order is another
// table. A row names the nodes of a MoE layer; in a dense layer mlp stands where experts stands and
// the rows without a counterpart are skipped.
//
//   ep       combine_bwd    counts, DISPATCH_FWD -> dispatch_bwd         COMBINE_FWD
//   compute  ATTENTION_FWD  experts_bwd_input -> weight -> EXPERTS_FWD   attention_bwd -> weight
//            (upper case: forward, lower case: backward)
#pragma once

#include <array>

#include "tandem/schedule/program.h"

namespace tandem {

struct LayerRow {
  Op op;             // kRun or kHostWait
  Dir dir;           // whose layer
  NodeKind node;     // kRun; for kHostWait: kCounts
  Phase phase;       // kRun
  int layer_offset;  // added to the layer of that direction; rows outside the chunk are skipped
};

namespace rows {
constexpr LayerRow fwd(NodeKind node, int layer_offset = 0) {
  return {Op::kRun, Dir::kFwd, node, Phase::kFwd, layer_offset};
}
constexpr LayerRow bwd(NodeKind node) {
  return {Op::kRun, Dir::kBwd, node, Phase::kBwdInput, 0};
}
constexpr LayerRow weight(NodeKind node) {
  return {Op::kRun, Dir::kBwd, node, Phase::kBwdWeight, 0};
}
constexpr LayerRow counts_on_host() {
  return {Op::kHostWait, Dir::kFwd, NodeKind::kCounts, Phase::kFwd, 0};
}
}  // namespace rows

// A forward layer and a backward layer of different micro-batches; also a forward layer alone.
//   * aggregate_bwd comes first since combine_bwd needs it and nothing else is ready earlier.
//   * aggregate_fwd of a layer runs at the start of the next pair, so that the attention backward
//     between combine_fwd and it hides combine_fwd.
//   * The host waits for the counts once experts_bwd_input is enqueued: the device has work.
inline constexpr std::array kPairOrder = {
    rows::bwd(NodeKind::kAggregate),
    rows::bwd(NodeKind::kCombine),
    rows::fwd(NodeKind::kAggregate, -1),
    rows::fwd(NodeKind::kAttention),
    rows::bwd(NodeKind::kExperts),
    rows::fwd(NodeKind::kCounts),
    rows::counts_on_host(),
    rows::fwd(NodeKind::kDispatch),
    rows::weight(NodeKind::kExperts),
    rows::bwd(NodeKind::kDispatch),
    rows::fwd(NodeKind::kExperts),
    rows::fwd(NodeKind::kCombine),
    rows::bwd(NodeKind::kAttention),
    rows::weight(NodeKind::kAttention),
};

// A backward layer alone: the weight gradient of the experts is all that can hide dispatch_bwd.
inline constexpr std::array kBackwardOrder = {
    rows::bwd(NodeKind::kAggregate),    rows::bwd(NodeKind::kCombine),
    rows::bwd(NodeKind::kExperts),      rows::bwd(NodeKind::kDispatch),
    rows::weight(NodeKind::kExperts),   rows::bwd(NodeKind::kAttention),
    rows::weight(NodeKind::kAttention),
};

}  // namespace tandem
