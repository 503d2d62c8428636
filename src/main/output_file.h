// Files that commands write beside what they print.
#pragma once

#include <string>

namespace tandem {

// Throws Error(kUsage) where `output`, given with `option`, is the file `input` that is read.
void require_other_file(const char* option, const std::string& output, const std::string& input);

// Written as PATH.tmp, which then takes the place of PATH. Throws Error(kBadInput) where it cannot
// be written: an older file is still there then, and nothing of the new one.
void write_output_file(const std::string& path, const std::string& text);

}  // namespace tandem
