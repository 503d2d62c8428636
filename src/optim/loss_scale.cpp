#include "tandem/optim/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/json_writer.h"

namespace tandem {
namespace {

bool power_of_two(double x) {
  int exponent = 0;
  return x > 0.0 && std::frexp(x, &exponent) == 0.5;
}

}  // namespace

LossScaler::LossScaler(const OptimizerConfig& config, DType dtype)
    : active_(dtype == DType::kF16),
      fixed_scale_(config.loss_scale),
      least_(fixed() ? config.loss_scale : config.min_loss_scale),
      window_(config.loss_scale_window),
      hysteresis_(config.loss_scale_hysteresis) {
  state_.hysteresis_left = hysteresis_;
  if (active_) state_.scale = fixed() ? fixed_scale_ : config.initial_loss_scale;
}

StepVerdict LossScaler::update(bool finite) {
  if (!active_) return finite ? StepVerdict::kTaken : StepVerdict::kExhausted;
  if (!finite) {
    state_.good_steps = 0;
    state_.hysteresis_left = std::max(0, state_.hysteresis_left - 1);
    if (state_.hysteresis_left == 0) {
      if (state_.scale <= least_) return StepVerdict::kExhausted;
      state_.scale = std::max(least_, state_.scale / 2);
    }
    ++state_.skipped;
    return StepVerdict::kSkipped;
  }
  if (++state_.good_steps == window_) {
    state_.good_steps = 0;
    state_.hysteresis_left = hysteresis_;
    if (!fixed()) state_.scale = std::min(kMostLossScale, state_.scale * 2);
  }
  return StepVerdict::kTaken;
}

std::string LossScaler::doubt(double grad_norm) {
  if (!active_ || grad_norm != 0.0 || doubted_) return "";
  doubted_ = true;
  return fmt::format(
      "the gradient norm is 0: at a loss scale of {} all gradients may have vanished in fp16; "
      "raise {}",
      state_.scale, fixed() ? "optimizer.loss_scale" : "optimizer.initial_loss_scale");
}

std::string LossScaler::to_json() const {
  if (!active_ && state_.skipped == 0) return "";
  return JsonWriter()
      .begin_object()
      .key("scale")
      .value(state_.scale)
      .key("good_steps")
      .value(state_.good_steps)
      .key("hysteresis_left")
      .value(state_.hysteresis_left)
      .key("skipped")
      .value(state_.skipped)
      .end_object()
      .str();
}

void LossScaler::restore(const std::string& json, const std::string& what) {
  if (json.empty()) return;
  const Json saved = parse_json(json, what);
  const auto integer = [&](const char* key, std::int64_t most) {
    return saved.at(key, what).as_int(what + ": " + key, 0, most);
  };
  constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
  constexpr std::int64_t kMostSteps = std::numeric_limits<std::int64_t>::max();
  State state;
  state.scale = saved.at("scale", what).as_double(what + ": scale");
  state.good_steps = static_cast<int>(integer("good_steps", kMostInt));
  state.hysteresis_left = static_cast<int>(integer("hysteresis_left", kMostInt));
  state.skipped = integer("skipped", kMostSteps);
  if (!power_of_two(state.scale) || state.scale > kMostLossScale)
    throw_error(ExitCode::kBadInput, "{}: scale is {}, which is no power of two up to 2^126", what,
                state.scale);
  // A smaller window or hysteresis than the saving run's must still be reached.
  state.good_steps = std::min(state.good_steps, window_ - 1);
  state.hysteresis_left = std::min(state.hysteresis_left, hysteresis_);
  if (!active_)
    state_.skipped = state.skipped;
  else
    state_ = state;
  if (active_) state_.scale = fixed() ? fixed_scale_ : std::max(least_, state.scale);
}

}  // namespace tandem
