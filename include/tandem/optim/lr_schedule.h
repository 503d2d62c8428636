// Learning rate of a step: linear warm-up, then constant, cosine, or warm-up-stable-decay.
#pragma once

#include "tandem/config/config.h"

namespace tandem {

// `step` counts from 0; total_steps is train.steps. Warm-up: lr * (step + 1) / warmup_steps.
// cosine: from lr to min_lr over decay_steps (0: up to total_steps) after the warm-up, then min_lr.
// wsd: lr until total_steps - decay_steps (0: a tenth of total), then linearly down to min_lr.
double learning_rate(const OptimizerConfig& config, int step, int total_steps);

}  // namespace tandem
