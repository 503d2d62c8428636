#include <algorithm>
#include <cmath>

#include "fields.h"
#include "rules.h"
#include "tandem/config/split.h"

namespace tandem::config {
namespace {

const char* kind_name(DataKind kind) {
  return kind == DataKind::kText ? "text" : "megatron";
}

void check_loss_scale(const OptimizerConfig& o, Violations& out) {
  const auto power_of_two = [&](const char* key, double value) {
    int exponent = 0;
    if (value == 0.0) return;
    if (std::frexp(value, &exponent) == 0.5 && value >= kLeastLossScale) return;
    const double low = std::ldexp(0.5, exponent), high = std::ldexp(1.0, exponent);
    if (low < kLeastLossScale)
      out.add(key, value, "so low that the gradients of fp16 would vanish",
              "give 2^-16 or more, or 0 for a dynamic scale");
    else
      out.add(key, value, "not a power of two, so that scaling would round",
              fmt::format("give {} or {}", low, high));
  };
  power_of_two("optimizer.loss_scale", o.loss_scale);
  power_of_two("optimizer.initial_loss_scale", o.initial_loss_scale);
  power_of_two("optimizer.min_loss_scale", o.min_loss_scale);
  if (o.min_loss_scale > o.initial_loss_scale)
    out.add("optimizer.min_loss_scale", o.min_loss_scale,
            fmt::format("above optimizer.initial_loss_scale = {}", o.initial_loss_scale),
            fmt::format("give at most {}", o.initial_loss_scale));
}

// Products and values that fp32 would make infinite or 0.
void check_fp32(const OptimizerConfig& o, Violations& out) {
  if (o.clip > 0.0 && o.clip < kLeastFp32)
    out.add("optimizer.clip", o.clip, "is 0 in fp32, which would be no clipping",
            fmt::format("give {} or more, or 0 for no clipping", kLeastFp32));
  if (o.lr * o.weight_decay > kMostFp32)
    out.add("optimizer.weight_decay", o.weight_decay,
            fmt::format("times optimizer.lr = {} is beyond fp32", o.lr),
            fmt::format("give at most {}", kMostFp32 / o.lr));
}

void check_held_out(const RunConfig& config, Violations& out) {
  const DataConfig& d = config.data;
  if (!d.valid.empty()) return;
  const bool evaluates = config.train.eval_every > 0;
  if (d.kind == DataKind::kText && evaluates && d.valid_fraction == 0)
    out.add("train.eval_every", config.train.eval_every,
            "there is no held-out text, as data.valid is empty and data.valid_fraction is 0",
            "give data.valid or data.valid_fraction, or set train.eval_every=0");
  if (d.kind != DataKind::kMegatron) return;
  const auto weights = split_weights(d.split);
  if (!weights || (*weights)[0] == 0)
    out.add("data.split", '"' + d.split + '"',
            "not one to three weights in [0, 1e9] with the first above 0",
            "write it like 969,30,1");
  else if (evaluates && (*weights)[1] == 0)
    out.add("train.eval_every", config.train.eval_every,
            "data.split holds no validation documents out and data.valid is empty",
            "give data.valid or a second weight, or set train.eval_every=0");
}

}  // namespace

void check_training(const RunConfig& config, Violations& out) {
  const TrainConfig& t = config.train;
  const OptimizerConfig& o = config.optimizer;
  check_loss_scale(o, out);
  check_fp32(o, out);
  if (o.min_lr > o.lr)
    out.add("optimizer.min_lr", o.min_lr, fmt::format("above optimizer.lr = {}", o.lr),
            fmt::format("give at most {}", o.lr));
  if (o.schedule == LrSchedule::kWsd && o.decay_steps > 0 &&
      std::int64_t{o.warmup_steps} + o.decay_steps > t.steps)
    out.add(
        "optimizer.decay_steps", o.decay_steps,
        fmt::format("with warmup_steps = {} more than train.steps = {}", o.warmup_steps, t.steps),
        fmt::format("give at most {}", std::max(0, t.steps - o.warmup_steps)));
}

void check_files(const RunConfig& config, Violations& out) {
  const DataConfig& d = config.data;
  if (d.kind == DataKind::kText && config.model.vocab < 256)
    out.add("model.vocab", config.model.vocab, "the tokens of data.kind = text are bytes",
            "give at least 256");
  if (d.kind != DataKind::kSynthetic && d.train.empty())
    out.add("data.train", "[]", fmt::format("data.kind = {} needs files", kind_name(d.kind)),
            "name at least one file, or set data.kind=synthetic");
  check_held_out(config, out);
  if (config.checkpoint.every > 0 && config.checkpoint.dir.empty())
    out.add("checkpoint.every", config.checkpoint.every, "there is no folder to save to",
            "set checkpoint.dir, or checkpoint.every=0");
  const LoggingConfig& l = config.logging;
  if (l.trace_steps > 0 && l.trace.empty())
    out.add("logging.trace_steps", l.trace_steps, "there is no file to write the trace to",
            "set logging.trace, or logging.trace_steps=0");
  if (l.trace_steps == 0 && !l.trace.empty())
    out.add("logging.trace", l.trace, "no step would be traced", "set logging.trace_steps");
  if (l.trace_steps > 0 && l.trace_begin >= config.train.steps)
    out.add("logging.trace_begin", l.trace_begin,
            fmt::format("the last step is {}, so no step would be traced", config.train.steps - 1),
            fmt::format("give at most {}", config.train.steps - 1));
  if (l.profile_steps > 0 && l.profile_begin >= config.train.steps)
    out.add(
        "logging.profile_begin", l.profile_begin,
        fmt::format("the last step is {}, so no step would be profiled", config.train.steps - 1),
        fmt::format("give at most {}", config.train.steps - 1));
}

}  // namespace tandem::config
