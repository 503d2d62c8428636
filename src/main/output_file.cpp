#include "output_file.h"

#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/trace/trace.h"

namespace tandem {
namespace {

std::vector<std::string> files_read(const RunConfig& config, const std::string& config_path) {
  std::vector<std::string> files = {config_path};
  for (const auto* names : {&config.data.train, &config.data.valid})
    for (const std::string& name : *names) {
      if (config.data.kind == DataKind::kText) files.push_back(name);
      if (config.data.kind != DataKind::kMegatron) continue;
      files.push_back(name + ".bin");
      files.push_back(name + ".idx");
    }
  return files;
}

}  // namespace

void require_other_file(const char* option, const std::string& output, const std::string& input) {
  std::error_code missing;
  if (std::filesystem::equivalent(output, input, missing))
    throw_error(ExitCode::kUsage, "{} {} would overwrite {}; choose another file", option, output,
                input);
}

void require_outputs_apart(const RunConfig& config, const std::string& config_path, int rank) {
  const LoggingConfig& logging = config.logging;
  for (const std::string& input : files_read(config, config_path)) {
    if (rank == 0) require_other_file("logging.metrics", logging.metrics, input);
    if (!logging.trace.empty())
      require_other_file("logging.trace", trace_file(logging.trace, rank), input);
  }
}

}  // namespace tandem
