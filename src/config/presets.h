// Hyper-parameters of published models.
#pragma once

#include <string>

#include "tandem/config/config.h"

namespace tandem::config {

// Replaces `model` by the model called `name`; keys it does not define are at their defaults.
// Throws Error(kUsage) with the nearest name for an unknown one.
void apply_preset(const std::string& name, ModelConfig& model);

}  // namespace tandem::config
