// Loss scaling for fp16 (Micikevicius et al. 2018): backward passes multiply their gradients by a
// power of two, so that small ones do not vanish in fp16, and the optimizer divides by it. A pure
// state machine: every rank feeds it the same norm and so takes the same decision. The rules are
// Megatron's.
//
// A step whose gradient norm is not finite is skipped. The `hysteresis`-th such step and every
// further one halve the scale, down to the least; `window` good steps in a row double it and fill
// the hysteresis up again. With optimizer.loss_scale > 0 the scale is fixed.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/dtype.h"
#include "tandem/config/config.h"

namespace tandem {

enum class StepVerdict : std::uint8_t {
  kTaken,
  kSkipped,    // go on with the next batch
  kExhausted,  // not finite, and no lower scale could help
};

class LossScaler {
 public:
  // For any `dtype` but fp16 the scale is 1 and a norm that is not finite is kExhausted at once.
  LossScaler(const OptimizerConfig& config, DType dtype);

  [[nodiscard]] bool active() const { return active_; }
  // What the next step multiplies with.
  [[nodiscard]] double scale() const { return state_.scale; }
  // Steps of the whole run that left the parameters as they were. The schedule of the learning rate
  // and AdamW's bias correction count the others.
  [[nodiscard]] std::int64_t skipped() const { return state_.skipped; }

  // Once a step, after it: whether its gradient norm was finite.
  StepVerdict update(bool finite);

  // A warning where the norm says that the scale is too low, the first time; else "".
  std::string doubt(double grad_norm);

  // For checkpoints; "" where there is nothing to keep. restore() also takes the text of a run with
  // another dtype or another fixed scale: this run's config wins. "": no change. Throws
  // Error(kBadInput) naming `what` for other text.
  [[nodiscard]] std::string to_json() const;
  void restore(const std::string& json, const std::string& what);

 private:
  struct State {
    double scale = 1.0;
    int good_steps = 0;  // since the last change or overflow
    int hysteresis_left = 0;
    std::int64_t skipped = 0;
  };
  [[nodiscard]] bool fixed() const { return fixed_scale_ > 0.0; }

  bool active_;
  double fixed_scale_, least_;
  int window_, hysteresis_;
  bool doubted_ = false;
  State state_;
};

}  // namespace tandem
