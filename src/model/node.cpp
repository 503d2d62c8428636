#include "tandem/model/node.h"

#include <iterator>

namespace tandem {
namespace {

using enum SlotKind;
using enum Access;

// Embedding: table look-up; its backward is a weight gradient only.
constexpr SlotUse kEmbeddingFwd[] = {{kParams, kRead}, {kX, kWrite}};
constexpr SlotUse kEmbeddingBwdWeight[] = {{kDx, kRead}, {kGrads, kAccumulate}};

// Attention of a MoE layer ends with norm, router and permutation.
constexpr SlotUse kAttentionMoeFwd[] = {
    {kParams, kRead},       {kX, kRead},         {kAttnSaved, kWrite},  {kH, kWrite},
    {kRouterSaved, kWrite}, {kPermuted, kWrite}, {kCountsSend, kWrite}, {kPooledLoad, kAccumulate}};
// d_h is d_x of layer l + 1 (residual) plus what comes back through the experts and the router.
constexpr SlotUse kAttentionMoeBwdInput[] = {
    {kParams, kRead},      {kX, kRead},         {kAttnSaved, kRead},  {kH, kRead},
    {kRouterSaved, kRead}, {kDx, kRead, 1},     {kDPermuted, kRead},  {kPooledLoad, kRead},
    {kDx, kWrite},         {kAttnGrad, kWrite}, {kGrads, kAccumulate}};
constexpr SlotUse kAttentionDenseFwd[] = {
    {kParams, kRead}, {kX, kRead}, {kAttnSaved, kWrite}, {kH, kWrite}};
constexpr SlotUse kAttentionDenseBwdInput[] = {
    {kParams, kRead}, {kX, kRead},         {kAttnSaved, kRead},  {kDH, kRead},
    {kDx, kWrite},    {kAttnGrad, kWrite}, {kGrads, kAccumulate}};
constexpr SlotUse kAttentionBwdWeight[] = {
    {kParams, kRead}, {kX, kRead}, {kAttnSaved, kRead}, {kAttnGrad, kRead}, {kGrads, kAccumulate}};

// counts: all-to-all of the per-expert token counts, so that every rank can size what it receives.
constexpr SlotUse kCountsFwd[] = {{kCountsSend, kRead}, {kCountsRecv, kWrite}};

constexpr SlotUse kDispatchFwd[] = {{kPermuted, kRead}, {kExpertIn, kWrite}};
constexpr SlotUse kDispatchBwdInput[] = {{kDExpertIn, kRead}, {kDPermuted, kWrite}};

constexpr SlotUse kExpertsFwd[] = {{kParams, kRead},
                                   {kCountsRecv, kRead},
                                   {kExpertIn, kRead},
                                   {kExpertSaved, kWrite},
                                   {kExpertOut, kWrite}};
constexpr SlotUse kExpertsBwdInput[] = {
    {kParams, kRead},      {kCountsRecv, kRead},  {kDExpertOut, kRead}, {kExpertIn, kRead},
    {kExpertSaved, kRead}, {kExpertGrad, kWrite}, {kDExpertIn, kWrite}};
constexpr SlotUse kExpertsBwdWeight[] = {{kCountsRecv, kRead},
                                         {kExpertIn, kRead},
                                         {kExpertGrad, kRead},
                                         {kDExpertOut, kRead},
                                         {kGradsExperts, kAccumulate}};

constexpr SlotUse kCombineFwd[] = {{kExpertOut, kRead}, {kCombined, kWrite}};
constexpr SlotUse kCombineBwdInput[] = {{kDCombined, kRead}, {kDExpertOut, kWrite}};

// aggregate: sums a token's k rows and adds the residual.
constexpr SlotUse kAggregateFwd[] = {
    {kCombined, kRead}, {kH, kRead}, {kRouterSaved, kRead}, {kX, kWrite, 1}};
constexpr SlotUse kAggregateBwdInput[] = {
    {kDx, kRead, 1}, {kRouterSaved, kRead}, {kDCombined, kWrite}};

constexpr SlotUse kMlpFwd[] = {{kParams, kRead}, {kH, kRead}, {kMlpSaved, kWrite}, {kX, kWrite, 1}};
constexpr SlotUse kMlpBwdInput[] = {{kParams, kRead},     {kDx, kRead, 1},    {kH, kRead},
                                    {kMlpSaved, kRead},   {kMlpGrad, kWrite}, {kDH, kWrite},
                                    {kGrads, kAccumulate}};
constexpr SlotUse kMlpBwdWeight[] = {{kParams, kRead},  {kH, kRead},     {kMlpSaved, kRead},
                                     {kMlpGrad, kRead}, {kDx, kRead, 1}, {kGrads, kAccumulate}};

// The head's layer l is the chunk's layer_end. Its forward also produces the gradient of the final
// norm's output and the head's weight gradient, so that logits exist once, one chunk at a time.
constexpr SlotUse kHeadFwd[] = {
    {kParams, kRead}, {kX, kRead}, {kHeadSaved, kWrite}, {kGradsHead, kAccumulate}};
constexpr SlotUse kHeadBwdInput[] = {
    {kParams, kRead}, {kX, kRead}, {kHeadSaved, kRead}, {kDx, kWrite}, {kGradsHead, kAccumulate}};

constexpr NodeDesc kNodes[] = {
    {NodeKind::kEmbedding, Phase::kFwd, Lane::kCompute, kEmbeddingFwd},
    {NodeKind::kEmbedding, Phase::kBwdWeight, Lane::kCompute, kEmbeddingBwdWeight},
    {NodeKind::kCounts, Phase::kFwd, Lane::kEp, kCountsFwd},
    {NodeKind::kDispatch, Phase::kFwd, Lane::kEp, kDispatchFwd},
    {NodeKind::kDispatch, Phase::kBwdInput, Lane::kEp, kDispatchBwdInput},
    {NodeKind::kExperts, Phase::kFwd, Lane::kCompute, kExpertsFwd},
    {NodeKind::kExperts, Phase::kBwdInput, Lane::kCompute, kExpertsBwdInput},
    {NodeKind::kExperts, Phase::kBwdWeight, Lane::kCompute, kExpertsBwdWeight},
    {NodeKind::kCombine, Phase::kFwd, Lane::kEp, kCombineFwd},
    {NodeKind::kCombine, Phase::kBwdInput, Lane::kEp, kCombineBwdInput},
    {NodeKind::kAggregate, Phase::kFwd, Lane::kCompute, kAggregateFwd},
    {NodeKind::kAggregate, Phase::kBwdInput, Lane::kCompute, kAggregateBwdInput},
    {NodeKind::kMlp, Phase::kFwd, Lane::kCompute, kMlpFwd},
    {NodeKind::kMlp, Phase::kBwdInput, Lane::kCompute, kMlpBwdInput},
    {NodeKind::kMlp, Phase::kBwdWeight, Lane::kCompute, kMlpBwdWeight},
    {NodeKind::kHead, Phase::kFwd, Lane::kCompute, kHeadFwd},
    {NodeKind::kHead, Phase::kBwdInput, Lane::kCompute, kHeadBwdInput},
};
constexpr NodeDesc kAttentionMoe[] = {
    {NodeKind::kAttention, Phase::kFwd, Lane::kCompute, kAttentionMoeFwd},
    {NodeKind::kAttention, Phase::kBwdInput, Lane::kCompute, kAttentionMoeBwdInput},
    {NodeKind::kAttention, Phase::kBwdWeight, Lane::kCompute, kAttentionBwdWeight}};
constexpr NodeDesc kAttentionDense[] = {
    {NodeKind::kAttention, Phase::kFwd, Lane::kCompute, kAttentionDenseFwd},
    {NodeKind::kAttention, Phase::kBwdInput, Lane::kCompute, kAttentionDenseBwdInput},
    {NodeKind::kAttention, Phase::kBwdWeight, Lane::kCompute, kAttentionBwdWeight}};

constexpr NodeKind kMoeLayer[] = {NodeKind::kAttention, NodeKind::kCounts,  NodeKind::kDispatch,
                                  NodeKind::kExperts,   NodeKind::kCombine, NodeKind::kAggregate};
constexpr NodeKind kDenseLayer[] = {NodeKind::kAttention, NodeKind::kMlp};

}  // namespace

const NodeDesc* describe(NodeKind kind, Phase phase, bool moe) {
  if (kind == NodeKind::kAttention)
    return &(moe ? kAttentionMoe : kAttentionDense)[static_cast<int>(phase)];
  for (const NodeDesc& node : kNodes)
    if (node.kind == kind && node.phase == phase) return &node;
  return nullptr;
}

std::span<const NodeKind> layer_nodes(bool moe) {
  if (moe) return kMoeLayer;
  return kDenseLayer;
}

std::string_view name_of(NodeKind k) {
  constexpr std::string_view names[] = {"embedding", "attention", "counts", "dispatch", "experts",
                                        "combine",   "aggregate", "mlp",    "head"};
  static_assert(std::size(names) == kNumNodeKinds);
  return names[static_cast<int>(k)];
}

std::string_view name_of(Phase p) {
  constexpr std::string_view names[] = {"fwd", "bwd_input", "bwd_weight"};
  return names[static_cast<int>(p)];
}

std::string_view name_of(SlotKind k) {
  constexpr std::string_view names[kNumSlotKinds] = {"x",
                                                     "attn_saved",
                                                     "h",
                                                     "router_saved",
                                                     "permuted",
                                                     "counts_send",
                                                     "counts_recv",
                                                     "expert_in",
                                                     "expert_saved",
                                                     "expert_out",
                                                     "combined",
                                                     "mlp_saved",
                                                     "head_saved",
                                                     "d_x",
                                                     "d_combined",
                                                     "d_expert_out",
                                                     "expert_grad",
                                                     "d_expert_in",
                                                     "d_permuted",
                                                     "d_h",
                                                     "attn_grad",
                                                     "mlp_grad",
                                                     "pooled_load",
                                                     "grads",
                                                     "grads_head",
                                                     "grads_experts",
                                                     "params"};
  return names[static_cast<int>(k)];
}

std::string_view name_of(Lane l) {
  constexpr std::string_view names[kNumLanes] = {"compute",  "ep",       "send_fwd", "recv_fwd",
                                                 "send_bwd", "recv_bwd", "dp",       "host"};
  return names[static_cast<int>(l)];
}

std::string_view name_of(Dir d) {
  return d == Dir::kFwd ? "F" : "B";
}

}  // namespace tandem
