// Learning rate of a step: linear warm-up, then constant, cosine, or warm-up-stable-decay.
#pragma once

#include "tandem/config/config.h"

namespace tandem {

// `step` counts from 0; total_steps is train.steps. With p = step + 1 steps done after this one:
//   p <= warmup_steps   lr * p / warmup_steps
//   constant            lr
//   cosine              from lr at p = warmup_steps to min_lr at warmup_steps + decay_steps
//                       (0: total_steps), then min_lr
//   wsd                 lr until p = total_steps - decay_steps (0: a tenth of total_steps, at least
//                       one), then linearly to min_lr at p = total_steps
double learning_rate(const OptimizerConfig& config, int step, int total_steps);

}  // namespace tandem
