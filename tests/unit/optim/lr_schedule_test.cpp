#include "tandem/optim/lr_schedule.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

OptimizerConfig config(LrSchedule schedule) {
  OptimizerConfig c;
  c.lr = 1.0;
  c.min_lr = 0.25;
  c.warmup_steps = 4;
  c.schedule = schedule;
  return c;
}

}  // namespace

TEST_CASE("warm-up rises linearly and reaches the peak at its last step") {
  for (const LrSchedule s : {LrSchedule::kConstant, LrSchedule::kCosine, LrSchedule::kWsd}) {
    CHECK(learning_rate(config(s), 0, 100) == Approx(0.25));
    CHECK(learning_rate(config(s), 1, 100) == Approx(0.5));
    CHECK(learning_rate(config(s), 3, 100) == Approx(1.0));
  }
}

TEST_CASE("constant stays") {
  CHECK(learning_rate(config(LrSchedule::kConstant), 4, 10) == 1.0);
  CHECK(learning_rate(config(LrSchedule::kConstant), 9, 10) == 1.0);
}

TEST_CASE("cosine ends at min_lr with the last step") {
  OptimizerConfig c = config(LrSchedule::kCosine);
  CHECK(learning_rate(c, 4 + 48 - 1, 100) == Approx(0.625));  // half way
  CHECK(learning_rate(c, 99, 100) == Approx(0.25));
  CHECK(learning_rate(c, 98, 100) > 0.25);
  CHECK(learning_rate(c, 500, 100) == Approx(0.25));
  c.decay_steps = 10;
  CHECK(learning_rate(c, 8, 100) == Approx(0.625));
  CHECK(learning_rate(c, 13, 100) == Approx(0.25));
  CHECK(learning_rate(c, 50, 100) == Approx(0.25));
}

TEST_CASE("wsd is stable, then falls linearly to min_lr with the last step") {
  OptimizerConfig c = config(LrSchedule::kWsd);
  CHECK(learning_rate(c, 89, 100) == Approx(1.0));  // a tenth is the default decay
  CHECK(learning_rate(c, 94, 100) == Approx(0.625));
  CHECK(learning_rate(c, 99, 100) == Approx(0.25));
  c.decay_steps = 50;
  CHECK(learning_rate(c, 49, 100) == Approx(1.0));
  CHECK(learning_rate(c, 74, 100) == Approx(0.625));
  CHECK(learning_rate(c, 99, 100) == Approx(0.25));
}

TEST_CASE("schedules without warm-up or with no step left to decay") {
  OptimizerConfig c = config(LrSchedule::kCosine);
  c.warmup_steps = 0;
  CHECK(learning_rate(c, 0, 2) == Approx(0.625));
  CHECK(learning_rate(c, 1, 2) == Approx(0.25));
  c.warmup_steps = 10;
  CHECK(learning_rate(c, 4, 5) == Approx(0.5));  // still warming up at the end
}

}  // namespace tandem
