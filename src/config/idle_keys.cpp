// Keys that are set and change nothing: no error, as one file may serve several machines.
#include <algorithm>
#include <set>
#include <string_view>

#include "fields.h"
#include "presets.h"
#include "tandem/base/error.h"
#include "tandem/config/load.h"
#include "values.h"

namespace tandem {
namespace {

struct Idle {
  bool when;
  std::vector<const char*> keys;
  const char* why;
};

bool has_dense_layer(const ModelConfig& m) {
  for (int layer = 0; layer < m.layers; ++layer)
    if (!m.is_moe(layer)) return true;
  return false;
}

// When a key has no effect. Of several reasons for one key the first is told.
std::vector<Idle> idle_groups(const RunConfig& c, bool on_gpu) {
  const ModelConfig& m = c.model;
  const ParallelConfig& p = c.parallel;
  const TrainConfig& t = c.train;
  const DataConfig& d = c.data;
  const OptimizerConfig& o = c.optimizer;
  const std::int64_t tokens = c.tokens_per_microbatch();
  const bool fp16 = t.dtype == DType::kF16;
  const bool chunks_loss = std::min(t.loss_chunk_tokens, TrainConfig{}.loss_chunk_tokens) < tokens;
  return {
      {m.experts == 0,
       {"model.topk", "model.moe_ffn", "model.first_k_dense", "model.moe_every",
        "model.moe_pattern", "model.norm_topk_prob", "model.aux_loss", "model.aux_loss_coef",
        "model.z_loss_coef", "train.alltoall_delay_us"},
       "no effect, as model.experts is 0"},
      {!has_dense_layer(m), {"model.dense_ffn"}, "no effect, as every layer is MoE"},
      {!m.moe_pattern.empty(),
       {"model.first_k_dense", "model.moe_every"},
       "not read, as model.moe_pattern is given"},
      {m.aux_loss_coef == 0, {"model.aux_loss"}, "no effect, as model.aux_loss_coef is 0"},

      {p.vpp == 1 && p.microbatch_group != p.pp,  // resolved from 0, it is pp
       {"parallel.microbatch_group"},
       "no effect without parallel.vpp above 1"},
      {!p.partition.empty(), {"parallel.spread"}, "not read, as parallel.partition is given"},
      {m.layers % (p.pp * p.vpp) == 0,
       {"parallel.spread"},
       "no effect, as model.layers divides over parallel.pp x vpp"},
      {c.microbatches() == 1,
       {"overlap.enabled", "overlap.events"},
       "no effect with one micro-batch a step"},
      {!c.overlap.enabled, {"overlap.events"}, "no effect without overlap.enabled"},

      {!chunks_loss, {"train.loss_chunk_tokens"}, "no effect, as a micro-batch is one chunk"},
      {t.eval_every == 0, {"train.eval_batches"}, "no effect, as train.eval_every is 0"},
      {on_gpu, {"train.cpu_threads"}, "no effect, as the model runs on a GPU"},
      {!on_gpu,
       {"train.comm", "train.alltoall", "train.nccl_max_ctas", "train.compute_sms",
        "train.deterministic", "logging.profile_begin"},
       "no effect, as the model runs on the CPU"},
      {!on_gpu,
       {"logging.profile_steps"},
       "no effect, as the model runs on the CPU; logging.trace works there too"},
      {t.comm == CommChoice::kStaged,
       {"train.alltoall", "train.nccl_max_ctas"},
       "no effect, as copies through host memory carry everything (train.comm = staged)"},
      {p.ep == 1, {"train.alltoall"}, "no effect, as parallel.ep is 1"},
      {m.experts == 0, {"train.compute_sms"}, "no effect, as model.experts is 0"},
      {t.dtype == DType::kF32, {"train.compute_sms"}, "no effect with train.dtype=fp32"},

      {d.kind == DataKind::kSynthetic,
       {"data.train", "data.valid"},
       "not read, as data.kind is synthetic"},
      {d.kind != DataKind::kText, {"data.valid_fraction"}, "not read without data.kind=text"},
      {d.kind != DataKind::kMegatron, {"data.split"}, "not read without data.kind=megatron"},
      {!d.valid.empty(), {"data.valid_fraction", "data.split"}, "not read, as data.valid is given"},

      {o.warmup_steps >= t.steps,
       {"optimizer.schedule", "optimizer.min_lr", "optimizer.decay_steps"},
       "no effect, as the run ends within optimizer.warmup_steps"},
      {o.schedule == LrSchedule::kConstant,
       {"optimizer.min_lr", "optimizer.decay_steps"},
       "no effect, as optimizer.schedule is constant"},
      {o.min_lr == o.lr,
       {"optimizer.schedule", "optimizer.decay_steps"},
       "no effect, as optimizer.min_lr is optimizer.lr"},
      {o.weight_decay == 0,
       {"optimizer.decay_embeddings"},
       "no effect, as optimizer.weight_decay is 0"},
      {!fp16,
       {"optimizer.loss_scale", "optimizer.initial_loss_scale", "optimizer.min_loss_scale",
        "optimizer.loss_scale_window", "optimizer.loss_scale_hysteresis"},
       "no effect without train.dtype=fp16"},
      {o.loss_scale > 0,
       {"optimizer.initial_loss_scale", "optimizer.min_loss_scale", "optimizer.loss_scale_window",
        "optimizer.loss_scale_hysteresis"},
       "no effect, as optimizer.loss_scale is fixed"},

      {c.checkpoint.dir.empty(),
       {"checkpoint.keep", "checkpoint.resume"},
       "no effect without checkpoint.dir"},
      {c.logging.trace_steps == 0,
       {"logging.trace_begin"},
       "no effect, as logging.trace_steps is 0"},
      {c.logging.profile_steps == 0,
       {"logging.profile_begin"},
       "no effect, as logging.profile_steps is 0"},
  };
}

std::string text_of(const config::Field& field) {
  JsonWriter writer;
  write_value(writer, field);
  const std::string text = writer.str();
  const bool is_name = std::holds_alternative<config::ChoiceRef>(field.ref);
  return is_name ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

std::vector<std::string> idle_keys(const RunConfig& config, bool on_gpu) {
  RunConfig set = config, defaults;
  if (!config.model.preset.empty()) config::apply_preset(config.model.preset, defaults.model);
  const std::vector<config::Field> fields = config::fields(set), unset = config::fields(defaults);
  std::set<std::string_view> told;
  std::vector<std::string> lines;
  for (const Idle& group : idle_groups(config, on_gpu)) {
    if (!group.when) continue;
    for (const char* key : group.keys) {
      const auto at = std::find_if(fields.begin(), fields.end(),
                                   [&](const config::Field& f) { return f.name() == key; });
      TANDEM_CHECK(at != fields.end(), "there is no key {}", key);
      const std::string text = text_of(*at);
      const bool is_set = text != text_of(unset[static_cast<std::size_t>(at - fields.begin())]);
      if (is_set && told.insert(key).second)
        lines.push_back(fmt::format("{} = {}: {}", key, text, group.why));
    }
  }
  return lines;
}

}  // namespace tandem
