#include "foreign_keys.h"

#include <fmt/core.h>

#include <algorithm>

namespace tandem::config {
namespace {

using Text = std::string_view;
constexpr Text kAlways = "always";
// What several notes say.
constexpr Text kNoTensor = "there is no tensor parallelism; use parallel.ep, pp and dp";
constexpr Text kNoContext = "there is no context parallelism; use parallel.ep, pp and dp";
constexpr Text kNoRecompute =
    "nothing is recomputed; where memory is short, lower train.micro_batch or take more ranks";
constexpr Text kNoShared = "there are no shared experts";
constexpr Text kNoDropout = "there is no dropout";
constexpr Text kNoBias = "projections have no biases";
constexpr Text kNoTokenizer = "text is read as bytes, and data.kind=megatron reads tokens";
constexpr Text kDropless = "no token is dropped, so experts have no capacity";
constexpr Text kPartition = "a list of layers for every virtual stage";
constexpr Text kAdamW = "the optimizer is AdamW";

constexpr ForeignKey kForeign[] = {
    // model: Megatron-LM's, then Hugging Face's
    {"num_layers", "model.layers", ""},
    {"hidden_size", "model.hidden", ""},
    {"num_attention_heads", "model.heads", ""},
    {"num_query_groups", "model.kv_heads", ""},
    {"group_query_attention", "model.kv_heads", ""},
    {"kv_channels", "model.head_dim", ""},
    {"ffn_hidden_size", "model.dense_ffn", "of dense layers; model.moe_ffn of experts"},
    {"num_experts", "model.experts", ""},
    {"moe_router_topk", "model.topk", ""},
    {"moe_ffn_hidden_size", "model.moe_ffn", ""},
    {"moe_layer_freq", "model.moe_pattern",
     "a number N: 1 at layers 0, N, 2N, ...; model.moe_every counts otherwise"},
    {"moe_aux_loss_coeff", "model.aux_loss_coef", ""},
    {"moe_z_loss_coeff", "model.z_loss_coef", ""},
    {"moe_router_load_balancing_type", "model.aux_loss", ""},
    {"moe_router_score_function", "", "the router is a softmax"},
    {"moe_router_pre_softmax", "model.norm_topk_prob", "false where it is true"},
    {"moe_router_enable_expert_bias", "", "balance comes from model.aux_loss_coef"},
    {"moe_shared_expert_intermediate_size", "", kNoShared},
    {"moe_expert_capacity_factor", "", kDropless},
    {"moe_token_drop_policy", "", kDropless},
    {"moe_grouped_gemm", kAlways, ""},
    {"moe_permute_fusion", kAlways, ""},
    {"moe_token_dispatcher_type", "train.alltoall", "tokens always go by all-to-all"},
    {"padded_vocab_size", "model.vocab", ""},
    {"make_vocab_size_divisible_by", "", "model.vocab is taken as it is"},
    {"rotary_base", "model.rope_theta", ""},
    {"rotary_percent", "", "rotary positions turn the whole head"},
    {"position_embedding_type", "", "positions are always rotary"},
    {"normalization", "", "norms are always RMSNorm; model.norm_eps"},
    {"norm_epsilon", "model.norm_eps", ""},
    {"layernorm_epsilon", "model.norm_eps", ""},
    {"qk_layernorm", "model.qk_norm", "per_head, full or none"},
    {"swiglu", kAlways, ""},
    {"untie_embeddings_and_output_weights", "model.tied_embeddings", "false is the default"},
    {"init_method_std", "model.init_std", ""},
    {"attention_dropout", "", kNoDropout},
    {"hidden_dropout", "", kNoDropout},
    {"add_bias_linear", "", kNoBias},
    {"disable_bias_linear", kAlways, ""},
    {"add_qkv_bias", "", kNoBias},
    {"num_hidden_layers", "model.layers", ""},
    {"num_key_value_heads", "model.kv_heads", ""},
    {"intermediate_size", "model.dense_ffn", "of dense layers; model.moe_ffn of experts"},
    {"num_local_experts", "model.experts", ""},
    {"n_routed_experts", "model.experts", ""},
    {"num_experts_per_tok", "model.topk", ""},
    {"moe_intermediate_size", "model.moe_ffn", ""},
    {"decoder_sparse_step", "model.moe_every", ""},
    {"mlp_only_layers", "model.moe_pattern", "1 for MoE and 0 for dense"},
    {"first_k_dense_replace", "model.first_k_dense", ""},
    {"router_aux_loss_coef", "model.aux_loss_coef", "with model.aux_loss=pooled"},
    {"router_z_loss_coef", "model.z_loss_coef", ""},
    {"n_shared_experts", "", kNoShared},
    {"shared_expert_intermediate_size", "", kNoShared},
    {"vocab_size", "model.vocab", ""},
    {"rms_norm_eps", "model.norm_eps", ""},
    {"use_qk_norm", "model.qk_norm", "per_head, full or none"},
    {"rope_scaling", "", "rotary angles follow model.rope_theta alone"},
    {"tie_word_embeddings", "model.tied_embeddings", ""},
    {"initializer_range", "model.init_std", ""},
    {"max_position_embeddings", "train.seq_len", ""},
    {"hidden_act", "", "MLPs are always SwiGLU"},
    {"attention_bias", "", kNoBias},
    {"sliding_window", "", "attention sees the whole sequence"},
    // parallel, overlap
    {"tp", "", kNoTensor},
    {"tensor_model_parallel_size", "", kNoTensor},
    {"expert_tensor_parallel_size", "", kNoTensor},
    {"sequence_parallel", "", kNoTensor},
    {"cp", "", kNoContext},
    {"context_parallel_size", "", kNoContext},
    {"pipeline_model_parallel_size", "parallel.pp", ""},
    {"virtual_pipeline_model_parallel_size", "parallel.vpp", ""},
    {"num_virtual_stages_per_pipeline_rank", "parallel.vpp", ""},
    {"num_layers_per_virtual_pipeline_stage", "parallel.vpp", "chunks of a stage, not layers"},
    {"expert_model_parallel_size", "parallel.ep", ""},
    {"data_parallel_size", "parallel.dp", ""},
    {"decoder_first_pipeline_num_layers", "parallel.partition", kPartition},
    {"decoder_last_pipeline_num_layers", "parallel.partition", kPartition},
    {"pipeline_model_parallel_layout", "parallel.partition", kPartition},
    {"microbatch_group_size_per_virtual_pipeline_stage", "parallel.microbatch_group", ""},
    {"overlap_moe_expert_parallel_comm", "overlap.enabled", ""},
    {"delay_wgrad_compute", "overlap.delay_wgrad", ""},
    {"use_distributed_optimizer", kAlways, ""},
    {"overlap_grad_reduce", kAlways, "a chunk's gradients, once its last backward pass is done"},
    {"overlap_param_gather", "", "parameters are gathered at the end of a step"},
    // train
    {"bf16", "train.dtype", "train.dtype=bf16"},
    {"fp16", "train.dtype", "train.dtype=fp16"},
    {"params_dtype", "train.dtype", ""},
    {"torch_dtype", "train.dtype", ""},
    {"micro_batch_size", "train.micro_batch", ""},
    {"per_device_train_batch_size", "train.micro_batch", ""},
    {"global_batch_size", "train.global_batch", ""},
    {"gradient_accumulation_steps", "train.global_batch", "sequences of a step over all ranks"},
    {"rampup_batch_size", "", "every step has train.global_batch sequences"},
    {"seq_length", "train.seq_len", ""},
    {"train_iters", "train.steps", ""},
    {"max_steps", "train.steps", ""},
    {"train_samples", "train.steps", "steps, not samples"},
    {"num_train_epochs", "train.steps", "steps, not epochs"},
    {"eval_interval", "train.eval_every", ""},
    {"eval_steps", "train.eval_every", ""},
    {"eval_iters", "train.eval_batches", "micro-batches of a data-parallel rank"},
    {"deterministic_mode", "train.deterministic", ""},
    {"distributed_timeout_minutes", "train.watchdog_s", "in seconds"},
    {"recompute", "", kNoRecompute},
    {"recompute_activations", "", kNoRecompute},
    {"recompute_granularity", "", kNoRecompute},
    {"recompute_method", "", kNoRecompute},
    {"recompute_modules", "", kNoRecompute},
    {"recompute_num_layers", "", kNoRecompute},
    {"gradient_checkpointing", "", kNoRecompute},
    {"exit_signal_handler", kAlways, "SIGUSR1 saves and ends the run"},
    {"exit_duration_in_mins", "", "send SIGUSR1, which saves and ends the run"},
    // data
    {"data_path", "data.train", "with data.kind=megatron"},
    {"train_data_path", "data.train", "with data.kind=megatron"},
    {"valid_data_path", "data.valid", "with data.kind=megatron"},
    {"mock_data", "data.kind", "data.kind=synthetic"},
    {"tokenizer_type", "", kNoTokenizer},
    {"tokenizer_model", "", kNoTokenizer},
    {"vocab_file", "", kNoTokenizer},
    {"merge_file", "", kNoTokenizer},
    // optimizer
    {"optimizer", "", kAdamW},
    {"optim", "", kAdamW},
    {"learning_rate", "optimizer.lr", ""},
    {"lr_decay_style", "optimizer.schedule", ""},
    {"lr_scheduler_type", "optimizer.schedule", ""},
    {"lr_warmup_iters", "optimizer.warmup_steps", ""},
    {"lr_warmup_samples", "optimizer.warmup_steps", "steps, not samples"},
    {"lr_decay_iters", "optimizer.decay_steps", "counted from the end of the warm-up"},
    {"lr_wsd_decay_iters", "optimizer.decay_steps", ""},
    {"adam_beta1", "optimizer.beta1", ""},
    {"adam_beta2", "optimizer.beta2", ""},
    {"adam_eps", "optimizer.eps", ""},
    {"adam_epsilon", "optimizer.eps", ""},
    {"clip_grad", "optimizer.clip", ""},
    {"max_grad_norm", "optimizer.clip", ""},
    {"hysteresis", "optimizer.loss_scale_hysteresis", ""},
    // checkpoint, logging
    {"save", "checkpoint.dir", ""},
    {"load", "checkpoint.dir", "a run continues from where it saves"},
    {"output_dir", "checkpoint.dir", ""},
    {"save_interval", "checkpoint.every", ""},
    {"save_steps", "checkpoint.every", ""},
    {"save_total_limit", "checkpoint.keep", ""},
    {"resume_from_checkpoint", "checkpoint.resume", ""},
    {"finetune", "", "a run continues its own checkpoints alone"},
    {"log_interval", "logging.every", ""},
    {"logging_steps", "logging.every", ""},
    {"tensorboard_dir", "logging.tensorboard", ""},
    {"wandb_project", "", "see logging.metrics and logging.tensorboard"},
    {"profile_step_start", "logging.profile_begin", ""},
    {"profile_step_end", "logging.profile_steps", "a number of steps"},
};

}  // namespace

std::span<const ForeignKey> foreign_keys() {
  return kForeign;
}

std::string foreign_hint(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const ForeignKey& known : kForeign) {
    if (known.theirs != name) continue;
    if (known.ours.empty()) return fmt::format("not supported: {}", known.note);
    const std::string note = known.note.empty() ? "" : fmt::format(" ({})", known.note);
    if (known.ours == kAlways) return "always on here" + note;
    return fmt::format("here it is {}{}", known.ours, note);
  }
  return {};
}

}  // namespace tandem::config
