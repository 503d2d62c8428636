// What people type who come from other trainers, and what it is called here. Private.
#pragma once

#include <string_view>

namespace tandem::config {

// A hint for a key of another program: "model.layers", or why there is none. Empty if unknown.
// Dashes count as underscores.
std::string_view foreign_hint(std::string_view key);

}  // namespace tandem::config
