// Training steps of a config through the trainer itself, without checkpoints, evaluation and logs.
#include "world_benches.h"

#include <algorithm>

#include "measure.h"
#include "tandem/train/trainer.h"

namespace tandem::bench {
namespace {

constexpr int kWarmUpSteps = 3;

RunConfig steps_only(RunConfig config, int repeats) {
  config.train.steps = kWarmUpSteps + repeats;
  config.train.eval_every = 0;
  config.data = DataConfig{};  // synthetic
  config.optimizer.warmup_steps = 1;
  config.optimizer.decay_steps = 0;
  config.optimizer.lr = config.optimizer.min_lr = 0.0;  // the router stays untrained, so even
  config.checkpoint = CheckpointConfig{};
  config.logging = LoggingConfig{};
  return config;
}

struct Steps {
  std::vector<StepReport> timed;

  // The median over the steps of one of their figures.
  template <class Get>
  [[nodiscard]] double middle(const Get& get) const {
    std::vector<double> values;
    for (const StepReport& step : timed) values.push_back(get(step));
    return median(values);
  }
};

Row to_row(const std::string& name, const StepReport& step, const RunConfig& config) {
  Row row;
  row.group = "slice";
  row.name = name;
  row.shape = fmt::format("{} x {} x {} tokens", config.microbatches(), config.train.micro_batch,
                          config.train.seq_len);
  row.ms = row.min_ms = step.seconds * 1e3;
  row.flops = step.tflops * 1e12 * step.seconds;
  row.rate = step.tflops;
  row.unit = "TFLOP/s";
  // mb_ms: forward and backward of one micro-batch, without the optimizer step.
  row.more = {{"mb_ms", step.forward_backward_ms / config.microbatches()},
              {"optimizer_ms", step.optimizer_ms},
              {"tokens_per_s", step.tokens_per_s},
              {"hidden_pct", 100.0 * step.hidden_share},
              {"gib", step.memory_gib}};
  return row;
}

// Every figure's own median: they need not come from one step.
StepReport medians(const Steps& steps) {
  StepReport out = steps.timed.back();
  out.seconds = steps.middle([](const StepReport& s) { return s.seconds; });
  out.tflops = steps.middle([](const StepReport& s) { return s.tflops; });
  out.tokens_per_s = steps.middle([](const StepReport& s) { return s.tokens_per_s; });
  out.hidden_share = steps.middle([](const StepReport& s) { return s.hidden_share; });
  out.optimizer_ms = steps.middle([](const StepReport& s) { return s.optimizer_ms; });
  out.forward_backward_ms = steps.middle([](const StepReport& s) { return s.forward_backward_ms; });
  return out;
}

}  // namespace

std::vector<Row> slice_rows(World& world, const RunConfig& config, int repeats, double flops_limit,
                            TrainHooks hooks) {
  const RunConfig run = steps_only(config, repeats);
  Log quiet(world.rank(), true);
  Steps steps;
  hooks.on_step = [&](const StepReport& step) {
    if (step.step > kWarmUpSteps) steps.timed.push_back(step);
  };
  train_rank(world, run, quiet, hooks);
  if (steps.timed.empty()) return {};  // rank 0 alone is told of steps, or a signal ended the run

  std::vector<Row> rows;
  for (const StepReport& step : steps.timed)
    rows.push_back(to_row(fmt::format("step {}", step.step), step, run));
  Row middle = to_row("median", medians(steps), run);
  for (const Row& row : rows) middle.min_ms = std::min(middle.min_ms, row.ms);
  rows.push_back(std::move(middle));
  for (Row& row : rows) row.share = row.rate * 1e12 / (flops_limit * world.size());
  return rows;
}

}  // namespace tandem::bench
