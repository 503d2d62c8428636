// Files that commands write beside what they print.
#pragma once

#include <string>

#include "tandem/config/config.h"

namespace tandem {

// Throws Error(kUsage) where `output`, given with `option`, is the file `input` that is read.
void require_other_file(const char* option, const std::string& output, const std::string& input);

// The same for what a rank writes while it trains, and all that it reads: the config's file and the
// data.
void require_outputs_apart(const RunConfig& config, const std::string& config_path, int rank);

}  // namespace tandem
