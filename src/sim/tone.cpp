// Which shade an instruction gets in every chart.
#include "tandem/sim/chart.h"

namespace tandem {

Tone tone_of(Op op, NodeKind node, Phase phase) {
  switch (op) {
    case Op::kSend:
    case Op::kRecv:
      return Tone::kTransfer;
    case Op::kGradSync:
    case Op::kOptStep:
      return Tone::kGradients;
    case Op::kHostWait:
      return Tone::kHostWait;
    default:
      break;
  }
  if (phase == Phase::kBwdWeight) return Tone::kWeight;
  switch (node) {
    case NodeKind::kAttention:
      return Tone::kAttention;
    case NodeKind::kExperts:
      return Tone::kExperts;
    case NodeKind::kMlp:
      return Tone::kMlp;
    case NodeKind::kAggregate:
      return Tone::kAggregate;
    case NodeKind::kCounts:
      return Tone::kCounts;
    case NodeKind::kDispatch:
    case NodeKind::kCombine:
      return Tone::kAllToAll;
    case NodeKind::kEmbedding:
    case NodeKind::kHead:
      break;
  }
  return Tone::kEnds;
}

}  // namespace tandem
