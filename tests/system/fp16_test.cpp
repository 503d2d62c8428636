// Training in fp16: it follows fp32, its loss scale does not show in the gradient, overflows cost
// steps and nothing else, and a resumed run has the loss scale of one that never stopped.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "training.h"

namespace tandem {
namespace {

const Overrides kFp16 = {"train.dtype=fp16"};
const Overrides kLayout = {"parallel.pp=2", "parallel.ep=2"};

// With 2^40 the gradients of the first step overflow on every layout.
const Overrides kTooHigh = {"optimizer.initial_loss_scale=1099511627776",
                            "optimizer.loss_scale_hysteresis=1"};

double largest_difference(const Training& a, const Training& b, double StepReport::*value) {
  REQUIRE(a.steps.size() == b.steps.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const double relative = std::abs(a.steps[i].*value / (b.steps[i].*value) - 1.0);
    worst = std::isnan(relative) ? HUGE_VAL : std::max(worst, relative);
  }
  return worst;
}

std::vector<double> scales_of(const Training& training) {
  std::vector<double> scales;
  for (const StepReport& step : training.steps) scales.push_back(step.loss_scale);
  return scales;
}

void copy_step(const std::string& from, const std::string& to, int step) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(step_folder(from, step), step_folder(to, step),
                        std::filesystem::copy_options::recursive);
}

TEST_CASE("fp16 follows fp32 on one rank and on four") {
  const Training reference = train(1, {});
  for (const auto& [ranks, layout] :
       {std::pair{1, Overrides{}},
        {4, Overrides{"parallel.pp=2", "parallel.vpp=2", "parallel.ep=2"}},
        {4, Overrides{"parallel.ep=4", "model.tied_embeddings=false"}}}) {
    INFO(fmt::format("{} ranks {}", ranks, fmt::join(layout, " ")));
    const Training fp16 = train(ranks, layout + kFp16);
    // An fp16 number has 11 significant bits, 8 times the precision of bf16.
    CHECK(largest_difference(fp16, reference, &StepReport::loss) <= 0.01 / 8);
    CHECK(largest_difference(fp16, reference, &StepReport::loss) > 1e-7);  // it is another one
    CHECK(fp16.steps.back().skipped == 0);
    CHECK(fp16.steps.back().loss_scale == 65536);
  }
}

TEST_CASE("the loss scale does not show in the gradient, auxiliary losses included") {
  const Overrides strong = {"model.aux_loss_coef=1", "model.z_loss_coef=0.1", "train.steps=3"};
  const Training reference = train(2, strong + Overrides{"parallel.pp=2"});
  for (const char* scale : {"256", "4096", "65536"}) {
    INFO(scale);
    const Overrides fixed = {"parallel.pp=2", fmt::format("optimizer.loss_scale={}", scale)};
    const Training fp16 = train(2, strong + fixed + kFp16);
    CHECK(largest_difference(fp16, reference, &StepReport::grad_norm) <= 0.01);
    CHECK(largest_difference(fp16, reference, &StepReport::aux) <= 0.01);
  }
}

TEST_CASE("a scale that is too high costs steps and nothing else") {
  const TempFolder folder;
  const std::string high = folder / "high", fitting = folder / "fitting", start = folder / "start";
  const Overrides run = kLayout + kFp16 + Overrides{"train.steps=30", "checkpoint.every=1"};
  const Overrides keep = {"checkpoint.keep=100", "checkpoint.dir=" + high};
  const Training overflowed = train(4, run + kTooHigh + keep);
  REQUIRE(overflowed.steps.size() == 30);
  const StepReport& last = overflowed.steps.back();
  const auto skipped = static_cast<int>(last.skipped);
  REQUIRE(skipped >= 3);
  REQUIRE(skipped <= 25);
  CHECK(last.loss_scale == std::ldexp(1.0, 40 - skipped));
  for (int i = 0; i < 30; ++i) {
    const StepReport& step = overflowed.steps[static_cast<std::size_t>(i)];
    CHECK(std::isfinite(step.grad_norm) == (i >= skipped));
    CHECK(std::isfinite(step.loss));
    CHECK(step.skipped == std::min(i + 1, skipped));
    CHECK(step.skipped_since_line == (i < skipped ? 1 : 0));
    // Skipped steps do not advance the schedule: the rate of the first one is asked for again.
    if (i <= skipped) CHECK(step.lr == overflowed.steps[0].lr);
  }

  // The state after them is the initial one...
  (void)train(4, kLayout + kFp16 +
                     Overrides{"train.steps=1", "optimizer.lr=0", "optimizer.min_lr=0",
                               "checkpoint.dir=" + start});
  const ModelState untouched = read_state(step_folder(high, skipped), {});
  for (const auto& [name, values] : read_state(step_folder(start, 1), {})) {
    INFO(name);
    const std::vector<float>& found = untouched.at(name);
    const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
    CHECK(std::equal(found.begin(), found.begin() + third, values.begin()));
    CHECK(std::all_of(found.begin() + third, found.end(), [](float x) { return x == 0.0F; }));
  }

  // The first step that is taken is AdamW's first: bias correction makes it one rate long.
  float longest = 0.0F;
  for (const auto& [name, values] : read_state(step_folder(high, skipped + 1), {}))
    for (std::size_t i = 0; i < values.size() / 3; ++i)
      longest = std::max(longest, std::abs(values[i] - untouched.at(name)[i]));
  const double rate = overflowed.steps[static_cast<std::size_t>(skipped)].lr;
  CHECK(static_cast<double>(longest) == Approx(rate).epsilon(0.05));

  // ...and from there it is the run that has the fitting scale from its beginning.
  copy_step(high, fitting, skipped);
  const Overrides fixed = {fmt::format("optimizer.loss_scale={}", last.loss_scale),
                           "checkpoint.dir=" + fitting};
  const Training fitted = train(4, run + fixed);
  REQUIRE(fitted.steps.size() == static_cast<std::size_t>(30 - skipped));
  for (std::size_t i = 0; i < fitted.steps.size(); ++i)
    CHECK(fitted.steps[i].loss == overflowed.steps[i + static_cast<std::size_t>(skipped)].loss);
  CHECK(read_state(step_folder(fitting, 30), {}) == read_state(step_folder(high, 30), {}));
}

TEST_CASE("resumed in fp16 equals never stopped, wherever the scale stands") {
  // Windows of two steps: the scale climbs until it overflows, again and again.
  const Overrides run =
      kLayout + kFp16 +
      Overrides{"train.steps=16", "checkpoint.every=1", "checkpoint.keep=100",
                "optimizer.initial_loss_scale=16777216", "optimizer.loss_scale_window=2"};
  const TempFolder folder;
  const std::string whole = folder / "whole";
  const Training straight = train(4, run + Overrides{"checkpoint.dir=" + whole});
  REQUIRE(straight.steps.back().skipped >= 2);
  REQUIRE(straight.steps.back().skipped <= 10);
  for (const int stop : {3, 6, 9, 13}) {
    INFO(stop);
    const std::string dir = folder / fmt::format("{}", stop);
    copy_step(whole, dir, stop);
    const Training resumed = train(4, run + Overrides{"checkpoint.dir=" + dir});
    REQUIRE(resumed.steps.size() == static_cast<std::size_t>(16 - stop));
    const auto tail = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + stop, all.end());
    };
    CHECK(resumed.losses() == tail(straight.losses()));
    CHECK(scales_of(resumed) == tail(scales_of(straight)));
    CHECK(resumed.steps.back().skipped == straight.steps.back().skipped);
    CHECK(read_state(step_folder(dir, 16), {}) == read_state(step_folder(whole, 16), {}));
  }
}

TEST_CASE("a run without loss scaling leaves a checkpoint that fp16 continues, and back") {
  const TempFolder folder;
  const Overrides dir = {"checkpoint.dir=" + (folder / "c")};
  (void)train(2, dir + Overrides{"parallel.pp=2", "train.steps=2"});
  CHECK(find_checkpoint(folder / "c")->info.loss_scale_json.empty());
  const Training fp16 =
      train(2, dir + kFp16 + kTooHigh + Overrides{"parallel.pp=2", "train.steps=6"});
  CHECK(fp16.steps.back().skipped == 4);
  CHECK(fp16.steps.back().loss_scale == std::ldexp(1.0, 36));
  CHECK_FALSE(find_checkpoint(folder / "c")->info.loss_scale_json.empty());
  const Training fp32 = train(2, dir + Overrides{"parallel.pp=2", "train.steps=8"});
  CHECK(fp32.steps.size() == 2);
  CHECK(std::isfinite(fp32.steps.back().grad_norm));
}

TEST_CASE("where the scale can fall no further the run ends and says what to change") {
  for (const Overrides& scale : {kTooHigh + Overrides{"optimizer.min_loss_scale=549755813888"},
                                 Overrides{"optimizer.loss_scale=1099511627776"}}) {
    try {
      (void)train(2, kFp16 + scale + Overrides{"parallel.pp=2"});
      FAIL("it went on");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kTraining);
      CHECK_THAT(error.what(), Catch::Contains("step 2: ") && Catch::Contains("loss scale") &&
                                   Catch::Contains("bf16"));
    }
  }
}

TEST_CASE("progress lines and metrics show the loss scale of fp16 alone") {
  RunConfig config = tiny(1, {});
  StepReport report;
  report.grad_norm = 0.5;
  report.loss_scale = 1.0;
  const auto line = [&](LogFormat format) {
    config.logging.format = format;
    return progress_line(report, config);
  };
  CHECK_THAT(line(LogFormat::kText), !Catch::Contains("scale"));
  CHECK_THAT(line(LogFormat::kJson), !Catch::Contains("scale"));
  CHECK_THAT(line(LogFormat::kMegatron),
             Catch::Contains("| loss scale: 1.0 | grad norm: 0.500 | number of skipped iterations: "
                             "  0 | number of nan iterations:   0 |"));
  report.scales_loss = true;
  report.loss_scale = 1048576;
  report.skipped = 12;
  report.skipped_since_line = 3;
  report.grad_norm = HUGE_VAL;
  CHECK_THAT(line(LogFormat::kText), Catch::Contains("| loss scale 1048576, skipped 12 |"));
  CHECK_THAT(line(LogFormat::kJson), Catch::Contains("\"loss-scale\": 1048576") &&
                                         Catch::Contains("\"skipped-steps\": 12") &&
                                         Catch::Contains("\"grad-norm\": null"));
  CHECK_THAT(line(LogFormat::kMegatron),
             Catch::Contains("| loss scale: 1048576.0 | number of skipped iterations:   3 | number "
                             "of nan iterations:   0 |"));
}

}  // namespace
}  // namespace tandem
