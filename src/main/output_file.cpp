#include "output_file.h"

#include <filesystem>
#include <fstream>

#include "tandem/base/error.h"

namespace tandem {

void require_other_file(const char* option, const std::string& output, const std::string& input) {
  std::error_code missing;
  if (std::filesystem::equivalent(output, input, missing))
    throw_error(ExitCode::kUsage, "{} {} would overwrite {}; choose another file", option, output,
                input);
}

void write_output_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  const bool begun = file.is_open();
  file << text;
  if (file.flush()) return;
  std::error_code ignored;  // what is being reported matters more
  if (begun && std::filesystem::is_regular_file(path, ignored))
    std::filesystem::remove(path, ignored);
  throw_error(ExitCode::kBadInput, "{} cannot be written: check the folder and the space", path);
}

}  // namespace tandem
