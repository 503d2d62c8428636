// Everything that is wrong with a config, said at once.
#pragma once

#include <string>
#include <vector>

namespace tandem::config {

// Throws Error(kUsage) that lists `problems`, one a line, under `origin`; returns if there is none.
void throw_if_any(const std::vector<std::string>& problems, const std::string& origin);

}  // namespace tandem::config
