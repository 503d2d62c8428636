// What a layer consists of: nodes cut at the expert all-to-alls, and the slots they read and write.
// This is the description; nn/ holds the bodies.
//
//   MoE layer    attention -> counts -> dispatch -> experts -> combine -> aggregate
//   dense layer  attention -> mlp
//   first/last   embedding, head (final norm, LM head, cross-entropy)
// The backward pass walks the same list in reverse. counts has no backward. experts, attention and
// mlp have a backward-weight node of their own, so that it can move.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

enum class Lane : std::uint8_t {
  kCompute, kEp, kSendFwd, kRecvFwd, kSendBwd, kRecvBwd, kDp, kHost
};
inline constexpr int kNumLanes = 8;          // kHost is the enqueuing thread, not a stream
enum class Dir : std::uint8_t { kFwd, kBwd };

enum class NodeKind : std::uint8_t {
  kEmbedding, kAttention, kCounts, kDispatch, kExperts, kCombine, kAggregate, kMlp, kHead
};
enum class Phase : std::uint8_t { kFwd, kBwdInput, kBwdWeight };

// A slot is a named tensor group of one (chunk, micro-batch, layer). `x` of layer l is the input of
// layer l; x of layer_end is the chunk's output. Sizes and the tensors inside: model/slot.h.
enum class SlotKind : std::uint8_t {
  kX,               // layer input                                        saved until attention bwd
  kAttnSaved,       // q, k, v, attention output, norm statistics         saved until attention bwd
  kH,               // residual after attention                           saved until attention/mlp bwd
  kRouterSaved,     // probabilities, chosen experts, row map             saved until attention bwd
  kPermuted,        // token rows and weights in expert order             attention -> dispatch
  kCountsSend,      // tokens per expert from this rank                   attention -> counts
  kCountsRecv,      // tokens per (source rank, local expert)             saved until experts bwd
  kExpertIn,        // received rows and weights, expert-major            saved until experts bwd
  kExpertSaved,     // gate and up projections                            saved until experts bwd
  kExpertOut,       // expert outputs                                     experts -> combine
  kCombined,        // rows back at their source rank                     combine -> aggregate
  kMlpSaved,        // dense layer: norm statistics, gate and up          saved until mlp bwd
  kHeadSaved,       // final-norm statistics, gradient of its output      saved until head bwd
  kDx,              // gradient of kX, same layer numbering
  kDCombined,       // gradient of kCombined
  kDExpertOut,      // gradient of kExpertOut
  kExpertGrad,      // d_gate_up and weighted activation                  bwd_input -> bwd_weight
  kDExpertIn,       // gradient of kExpertIn rows and weights
  kDPermuted,       // gradient of kPermuted rows and weights
  kDH,              // gradient of kH (dense layer)                       mlp bwd -> attention bwd
  kAttnGrad,        // what attention backward-weight needs
  kMlpGrad,         // what mlp backward-weight needs
  kPooledLoad,      // expert load and probability sums over the chunk's MoE layers (chunk-wide)
  kGrads,           // parameter gradients of the chunk (persistent, one per chunk)
  kGradsHead,       // gradients of final norm and head (persistent)
  kGradsExperts,    // gradients of one layer's experts (persistent, one per layer)
  kParams,          // parameters of the chunk (persistent)
};
inline constexpr int kNumSlotKinds = static_cast<int>(SlotKind::kParams) + 1;

enum class Access : std::uint8_t { kRead, kWrite, kAccumulate };  // accumulate = read and write

struct SlotUse {
  SlotKind kind;
  Access access;
  int layer_offset = 0;   // 0: the node's layer l; 1: l + 1
};

struct NodeDesc {
  NodeKind kind;
  Phase phase;
  Lane lane;
  std::span<const SlotUse> uses;
};

// The declared uses of a node; nullptr where the phase does not exist (counts has no backward).
// `moe` selects between attention of a MoE layer (with router) and of a dense layer.
const NodeDesc* describe(NodeKind kind, Phase phase, bool moe);

// Node order of a layer, forward.
std::span<const NodeKind> layer_nodes(bool moe);

// One slot per (chunk, micro-batch) with layer -1.
constexpr bool chunk_wide(SlotKind k) { return k == SlotKind::kPooledLoad; }
constexpr bool persistent(SlotKind k) { return k >= SlotKind::kGrads; }
// Declared kAccumulate, but a slot of this kind holds nothing of use before a program touches it:
// the first access is kWrite instead, which tells the body to start afresh.
constexpr bool first_access_writes(SlotKind k) {
  return chunk_wide(k) || k == SlotKind::kGradsExperts;
}

inline constexpr int kNumNodeKinds = static_cast<int>(NodeKind::kHead) + 1;
std::string_view name_of(NodeKind k);   // "attention"
std::string_view name_of(Phase p);      // "fwd" | "bwd_input" | "bwd_weight"
std::string_view name_of(SlotKind k);   // "x", "attn_saved", "expert_in", ...
std::string_view name_of(Lane l);       // "compute" "ep" "send_fwd" "recv_fwd" "send_bwd" "recv_bwd" "dp" "host"
std::string_view name_of(Dir d);        // "F" | "B"

}  // namespace tandem
