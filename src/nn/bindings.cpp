// The only table of node bodies: which function runs a kind and phase.
#include "tandem/base/error.h"
#include "tandem/nn/bodies.h"

namespace tandem {
namespace {

struct Binding {
  NodeKind kind;
  Phase phase;
  void (*body)(const NodeCtx&);
};

constexpr Binding kBindings[] = {
    {NodeKind::kEmbedding, Phase::kFwd, nn::embedding_fwd},
    {NodeKind::kEmbedding, Phase::kBwdWeight, nn::embedding_bwd_weight},
    {NodeKind::kAttention, Phase::kFwd, nn::attention_fwd},
    {NodeKind::kAttention, Phase::kBwdInput, nn::attention_bwd_input},
    {NodeKind::kAttention, Phase::kBwdWeight, nn::attention_bwd_weight},
    {NodeKind::kCounts, Phase::kFwd, nn::counts_fwd},
    {NodeKind::kDispatch, Phase::kFwd, nn::dispatch_fwd},
    {NodeKind::kDispatch, Phase::kBwdInput, nn::dispatch_bwd_input},
    {NodeKind::kExperts, Phase::kFwd, nn::experts_fwd},
    {NodeKind::kExperts, Phase::kBwdInput, nn::experts_bwd_input},
    {NodeKind::kExperts, Phase::kBwdWeight, nn::experts_bwd_weight},
    {NodeKind::kCombine, Phase::kFwd, nn::combine_fwd},
    {NodeKind::kCombine, Phase::kBwdInput, nn::combine_bwd_input},
    {NodeKind::kAggregate, Phase::kFwd, nn::aggregate_fwd},
    {NodeKind::kAggregate, Phase::kBwdInput, nn::aggregate_bwd_input},
    {NodeKind::kMlp, Phase::kFwd, nn::mlp_fwd},
    {NodeKind::kMlp, Phase::kBwdInput, nn::mlp_bwd_input},
    {NodeKind::kMlp, Phase::kBwdWeight, nn::mlp_bwd_weight},
    {NodeKind::kHead, Phase::kFwd, nn::head_fwd},
    {NodeKind::kHead, Phase::kBwdInput, nn::head_bwd_input},
};

}  // namespace

void run_node(NodeKind kind, Phase phase, const NodeCtx& ctx) {
  for (const Binding& binding : kBindings) {
    if (binding.kind == kind && binding.phase == phase) return binding.body(ctx);
  }
  throw_error(ExitCode::kInternal, "node {} has no {}; the schedule should not name it",
              name_of(kind), name_of(phase));
}

}  // namespace tandem
