#include "output_file.h"

#include <filesystem>
#include <fstream>

#include "tandem/base/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool written(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

// Beside the file that a link names, then in its place: what was there is lost only to a whole one.
bool replaced(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (error) target = path;
  const fs::path unfinished = target.string() + ".tmp";
  if (fs::is_directory(unfinished, error)) return false;
  if (written(unfinished, text)) {
    fs::rename(unfinished, target, error);
    if (!error) return true;
  }
  fs::remove(unfinished, error);
  return false;
}

}  // namespace

void require_other_file(const char* option, const std::string& output, const std::string& input) {
  std::error_code missing;
  if (fs::equivalent(output, input, missing))
    throw_error(ExitCode::kUsage, "{} {} would overwrite {}; choose another file", option, output,
                input);
}

void write_output_file(const std::string& path, const std::string& text) {
  std::error_code missing;
  const fs::file_status there = fs::status(path, missing);
  const bool device = fs::exists(there) && !fs::is_regular_file(there);  // as /dev/stdout: stays
  if (device ? written(path, text) : replaced(path, text)) return;
  throw_error(ExitCode::kBadInput, "{} cannot be written: check the folder and the space", path);
}

}  // namespace tandem
