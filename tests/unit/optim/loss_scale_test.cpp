// The loss scale as a state machine: when it halves, doubles, gives up, and what it keeps.
#include "tandem/optim/loss_scale.h"

#include <catch2/catch.hpp>

#include "tandem/base/error.h"

namespace tandem {
namespace {

OptimizerConfig config_of(double initial, int window, int hysteresis, double least = 1) {
  OptimizerConfig config;
  config.initial_loss_scale = initial;
  config.loss_scale_window = window;
  config.loss_scale_hysteresis = hysteresis;
  config.min_loss_scale = least;
  return config;
}

// Feeds one step a letter, '.' finite and 'x' not, and returns the scale after each.
std::vector<double> scales(LossScaler& scaler, std::string_view steps) {
  std::vector<double> after;
  for (const char step : steps) {
    const StepVerdict expected = step == '.' ? StepVerdict::kTaken : StepVerdict::kSkipped;
    CHECK(scaler.update(step == '.') == expected);
    after.push_back(scaler.scale());
  }
  return after;
}

using Scales = std::vector<double>;

TEST_CASE("every overflow halves the scale where the hysteresis is one") {
  LossScaler scaler(config_of(16, 1000, 1), DType::kF16);
  CHECK(scaler.scale() == 16);
  CHECK(scales(scaler, "x.xx.") == Scales{8, 8, 4, 2, 2});
  CHECK(scaler.skipped() == 3);
}

TEST_CASE("a window of good steps doubles the scale, an overflow begins it anew") {
  LossScaler scaler(config_of(16, 3, 1), DType::kF16);
  CHECK(scales(scaler, "...") == Scales{16, 16, 32});
  CHECK(scales(scaler, "..x..") == Scales{32, 32, 16, 16, 16});
  CHECK(scales(scaler, "....") == Scales{32, 32, 32, 64});
  CHECK(scaler.skipped() == 1);
}

TEST_CASE("hysteresis forgives overflows until it is used up, and a window fills it") {
  LossScaler scaler(config_of(16, 3, 3), DType::kF16);
  CHECK(scales(scaler, "xx") == Scales{16, 16});
  CHECK(scales(scaler, "..x") == Scales{16, 16, 8});  // good steps short of a window fill nothing
  CHECK(scales(scaler, "x") == Scales{4});            // used up: every further one halves
  CHECK(scales(scaler, "...") == Scales{4, 4, 8});
  CHECK(scales(scaler, "xxx") == Scales{8, 8, 4});
  CHECK(scaler.skipped() == 7);
}

TEST_CASE("the least scale is kept to, and an overflow there ends the run") {
  LossScaler scaler(config_of(8, 1000, 1, 2), DType::kF16);
  CHECK(scales(scaler, "xx.") == Scales{4, 2, 2});
  CHECK(scaler.update(false) == StepVerdict::kExhausted);
  CHECK(scaler.scale() == 2);
  CHECK(scaler.skipped() == 2);  // a run that ends skips no more
}

TEST_CASE("a fixed scale neither rises nor falls; hysteresis forgives it single overflows") {
  OptimizerConfig config = config_of(16, 2, 2);
  config.loss_scale = 128;
  LossScaler scaler(config, DType::kF16);
  CHECK(scales(scaler, "...x..x.") == Scales(8, 128.0));
  CHECK(scaler.update(false) == StepVerdict::kExhausted);
}

TEST_CASE("other dtypes have the scale one and end at what is not finite") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    LossScaler scaler(config_of(16, 1, 5), dtype);
    CHECK_FALSE(scaler.active());
    CHECK(scales(scaler, "....") == Scales(4, 1.0));
    CHECK(scaler.update(false) == StepVerdict::kExhausted);
    CHECK(scaler.to_json().empty());
  }
}

TEST_CASE("a restored scaler goes on where the saved one stood, in every state") {
  constexpr std::string_view kHistory = "x..x....xx...xxx......x.";
  for (std::size_t cut = 0; cut <= kHistory.size(); ++cut) {
    LossScaler saved(config_of(4096, 3, 2), DType::kF16), restored(config_of(4, 3, 2), DType::kF16);
    scales(saved, kHistory.substr(0, cut));
    restored.restore(saved.to_json(), "test");
    CHECK(restored.skipped() == saved.skipped());
    CHECK(scales(restored, kHistory.substr(cut)) == scales(saved, kHistory.substr(cut)));
    CHECK(restored.to_json() == saved.to_json());
  }
}

TEST_CASE("this run's config wins over the saved scale") {
  LossScaler saved(config_of(64, 3, 2), DType::kF16);
  scales(saved, "x");
  OptimizerConfig fixed = config_of(64, 3, 2);
  fixed.loss_scale = 1024;
  LossScaler with_fixed(fixed, DType::kF16);
  with_fixed.restore(saved.to_json(), "test");
  CHECK(with_fixed.scale() == 1024);

  LossScaler higher(config_of(512, 3, 2, 128), DType::kF16);
  higher.restore(saved.to_json(), "test");
  CHECK(higher.scale() == 128);

  // In another dtype what was skipped still counts for schedule and bias correction.
  LossScaler bf16(config_of(64, 3, 2), DType::kBF16);
  bf16.restore(saved.to_json(), "test");
  CHECK(bf16.scale() == 1);
  CHECK(bf16.skipped() == 1);
  LossScaler again(config_of(64, 3, 2), DType::kBF16);
  again.restore(bf16.to_json(), "test");
  CHECK(again.skipped() == 1);

  LossScaler fresh(config_of(64, 3, 2), DType::kF16);
  fresh.restore("", "a checkpoint without");
  CHECK(fresh.scale() == 64);
}

TEST_CASE("a scale that fp32 does not hold is never reached") {
  LossScaler scaler(config_of(0x1p125, 1, 1), DType::kF16);
  CHECK(scales(scaler, "...") == Scales{0x1p126, 0x1p126, 0x1p126});
}

TEST_CASE("a norm of zero says once that the scale is too low") {
  LossScaler scaler(config_of(16, 3, 1), DType::kF16);
  CHECK(scaler.doubt(0.5).empty());
  CHECK_THAT(scaler.doubt(0.0), Catch::Contains("loss scale of 16") &&
                                    Catch::Contains("raise optimizer.initial_loss_scale"));
  CHECK(scaler.doubt(0.0).empty());
  OptimizerConfig fixed;
  fixed.loss_scale = 0.5;
  CHECK_THAT(LossScaler(fixed, DType::kF16).doubt(0.0),
             Catch::Contains("raise optimizer.loss_scale"));
  CHECK(LossScaler(fixed, DType::kBF16).doubt(0.0).empty());
}

TEST_CASE("a state that no scaler wrote is refused by name") {
  for (const char* text :
       {"{}", R"({"scale":1e300,"good_steps":0,"hysteresis_left":1,"skipped":0})",
        R"({"scale":1.7014118346046923e38,"good_steps":0,"hysteresis_left":1,"skipped":0})",
        R"({"scale":3,"good_steps":0,"hysteresis_left":1,"skipped":0})",
        R"({"scale":0,"good_steps":0,"hysteresis_left":1,"skipped":0})",
        R"({"scale":4,"good_steps":-1,"hysteresis_left":1,"skipped":0})",
        R"({"scale":4,"good_steps":0,"hysteresis_left":1,"skipped":-2})"}) {
    INFO(text);
    LossScaler scaler(config_of(64, 3, 2), DType::kF16);
    try {
      scaler.restore(text, "the checkpoint");
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      CHECK_THAT(error.what(), Catch::Contains("the checkpoint"));
    }
    CHECK(scaler.scale() == 64);
  }
}

}  // namespace
}  // namespace tandem
