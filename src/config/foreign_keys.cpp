#include "foreign_keys.h"

#include <algorithm>
#include <string>

namespace tandem::config {
namespace {

struct Hint {
  std::string_view theirs, ours;
};

// Names of Megatron-LM's arguments and of Hugging Face's configs.
constexpr Hint kHints[] = {
    {"tp", "there is no tensor parallelism; use parallel.ep, pp and dp"},
    {"tensor_model_parallel_size", "there is no tensor parallelism; use parallel.ep, pp and dp"},
    {"cp", "there is no context parallelism; use parallel.ep, pp and dp"},
    {"context_parallel_size", "there is no context parallelism; use parallel.ep, pp and dp"},
    {"pipeline_model_parallel_size", "here it is parallel.pp"},
    {"virtual_pipeline_model_parallel_size", "here it is parallel.vpp"},
    {"expert_model_parallel_size", "here it is parallel.ep"},
    {"num_layers", "here it is model.layers"},
    {"num_hidden_layers", "here it is model.layers"},
    {"hidden_size", "here it is model.hidden"},
    {"num_attention_heads", "here it is model.heads"},
    {"num_query_groups", "here it is model.kv_heads"},
    {"num_key_value_heads", "here it is model.kv_heads"},
    {"kv_channels", "here it is model.head_dim"},
    {"ffn_hidden_size", "here it is model.dense_ffn"},
    {"intermediate_size", "here it is model.dense_ffn"},
    {"num_experts", "here it is model.experts"},
    {"num_local_experts", "here it is model.experts"},
    {"moe_router_topk", "here it is model.topk"},
    {"num_experts_per_tok", "here it is model.topk"},
    {"moe_ffn_hidden_size", "here it is model.moe_ffn"},
    {"moe_intermediate_size", "here it is model.moe_ffn"},
    {"vocab_size", "here it is model.vocab"},
    {"seq_length", "here it is train.seq_len"},
    {"micro_batch_size", "here it is train.micro_batch"},
    {"global_batch_size", "here it is train.global_batch"},
    {"train_iters", "here it is train.steps"},
    {"clip_grad", "here it is optimizer.clip"},
    {"save", "here it is checkpoint.dir"},
    {"save_interval", "here it is checkpoint.every"},
};

}  // namespace

std::string_view foreign_hint(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const Hint& hint : kHints)
    if (hint.theirs == name) return hint.ours;
  return {};
}

}  // namespace tandem::config
