// Which shade an instruction gets and how a time is written, in every chart.
#include <fmt/core.h>

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

std::string time_text(double us, double scale_us) {
  if (scale_us >= 1e6) return fmt::format("{:.4g} s", us / 1e6);
  if (scale_us >= 1e3) return fmt::format("{:.4g} ms", us / 1e3);
  return fmt::format("{:.4g} \u00b5s", us);
}

}  // namespace tandem
