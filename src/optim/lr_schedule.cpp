#include "tandem/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// How much of [begin, begin + length] lies before p, in 0 .. 1.
double progress(int p, int begin, int length) {
  if (length <= 0) return p > begin ? 1.0 : 0.0;
  return std::clamp(static_cast<double>(p - begin) / length, 0.0, 1.0);
}

double cosine(const OptimizerConfig& c, int p, int total_steps) {
  const int length = c.decay_steps > 0 ? c.decay_steps : total_steps - c.warmup_steps;
  const double angle = std::numbers::pi * progress(p, c.warmup_steps, length);
  return c.min_lr + (c.lr - c.min_lr) * 0.5 * (1.0 + std::cos(angle));
}

double stable_decay(const OptimizerConfig& c, int p, int total_steps) {
  const int length = c.decay_steps > 0 ? c.decay_steps : std::max(1, total_steps / 10);
  return c.lr + (c.min_lr - c.lr) * progress(p, total_steps - length, length);
}

}  // namespace

double learning_rate(const OptimizerConfig& config, int step, int total_steps) {
  const int p = step + 1;
  if (p <= config.warmup_steps) return config.lr * p / config.warmup_steps;
  switch (config.schedule) {
    case LrSchedule::kConstant:
      return config.lr;
    case LrSchedule::kCosine:
      return cosine(config, p, total_steps);
    case LrSchedule::kWsd:
      return stable_decay(config, p, total_steps);
  }
  return config.lr;
}

}  // namespace tandem
