#include "output_file.h"

#include <filesystem>

#include "tandem/base/error.h"

namespace tandem {

void require_other_file(const char* option, const std::string& output, const std::string& input) {
  std::error_code missing;
  if (std::filesystem::equivalent(output, input, missing))
    throw_error(ExitCode::kUsage, "{} {} would overwrite {}; choose another file", option, output,
                input);
}

}  // namespace tandem
