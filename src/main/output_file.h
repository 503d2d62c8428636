// Files that commands write beside what they print.
#pragma once

#include <string>

namespace tandem {

// Throws Error(kUsage) where `output`, given with `option`, is the file `input` that is read.
void require_other_file(const char* option, const std::string& output, const std::string& input);

}  // namespace tandem
