// Steps take the learning rate of their own number, also those of a run that continues.
#include "tandem/optim/lr_schedule.h"
#include "training.h"

namespace tandem {
namespace {

TEST_CASE("every step has the learning rate of its number") {
  const TempFolder folder;
  const char* schedule = GENERATE("constant", "cosine", "wsd");
  const Overrides run = {fmt::format("optimizer.schedule={}", schedule),
                         "train.steps=9",
                         "optimizer.warmup_steps=4",
                         "optimizer.decay_steps=3",
                         "checkpoint.every=2",
                         "checkpoint.dir=" + folder / "c"};
  const RunConfig config = tiny(2, run);
  Training training = train(2, run);
  CHECK(training.steps.front().lr == config.optimizer.lr / 4);
  CHECK(training.steps[3].lr == config.optimizer.lr);  // the last of the warm-up
  CHECK(training.steps.size() == 9);
  std::filesystem::remove_all(step_folder(folder / "c", 9));
  const Training resumed = train(2, run);  // after step 8
  REQUIRE(resumed.steps.size() == 1);
  training.steps.push_back(resumed.steps.front());
  for (const StepReport& step : training.steps)
    CHECK(step.lr ==
          learning_rate(config.optimizer, static_cast<int>(step.step) - 1, config.train.steps));
}

}  // namespace
}  // namespace tandem
