// Values that are not finite: whether a state has them, and what to say of a step that met them.
// Private to the trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/ckpt/checkpoint.h"
#include "tandem/config/config.h"
#include "tandem/optim/loss_scale.h"

namespace tandem {

// Where Engine::find_non_finite met a parameter, what it says begins so.
inline constexpr std::string_view kParameterPlace = "parameter ";

// "layers.0.router: element 17 of master is nan"; empty if all of it is finite. A master weight
// must also be finite in `storage`, the dtype of the parameters that are made of it, and v, a mean
// of squares, not negative.
std::string first_non_finite(const std::vector<StatePiece>& pieces, DType storage);

// "An update since step 3, the newest checkpoint, brought it. " and what makes updates smaller.
// Which update it was nobody knows: a row of an embedding is not read in every step. nullopt: no
// checkpoint of this run.
std::string update_advice(std::optional<std::int64_t> newest, const RunConfig& config);

struct NonFiniteStep {
  std::int64_t index = 0;  // counts from 0
  double loss = 0.0, grad_norm = 0.0;
  std::vector<std::string> places;     // by rank, as Engine::find_non_finite says
  std::optional<std::int64_t> newest;  // step of the newest checkpoint of this run
};

// What happened, where, and what to change.
std::string describe(const NonFiniteStep& step, const RunConfig& config, const LossScaler& scaler);

}  // namespace tandem
