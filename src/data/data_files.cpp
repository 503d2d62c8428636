#include "data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

namespace tandem {
namespace {

namespace fs = std::filesystem;

// What configs/demo.json trains on.
constexpr std::string_view kDemoText = "data/kjv.txt";

bool is_there(const std::string& path) {
  std::error_code unknown;
  return fs::exists(path, unknown);
}

// "0.3", in front of other words or other entries.
bool begins_with_weight(std::string_view text) {
  double weight = 0.0;
  const char* const end = text.data() + std::min(text.find(' '), text.size());
  const auto [stop, status] = std::from_chars(text.data(), end, weight);
  return status == std::errc() && stop == end && std::isfinite(weight);
}

// Where a file that is missing was looked for, and what helps.
std::string about_missing(const DataKey& key, const std::string& file) {
  const bool prefix = *key.ending != '\0';
  std::string text;
  if (fs::path(file).is_relative()) {
    std::error_code unknown;
    text += fmt::format("; relative paths count from {}, where the program was started",
                        fs::current_path(unknown).string());
  }
  if (prefix && !file.ends_with(".bin") && !file.ends_with(".idx"))
    text += fmt::format(
        "; set {} to the prefix of a .bin/.idx pair, which tandem tokenize writes from text",
        key.name);
  if (!prefix && file == kDemoText)
    text += "; the demo's text is written by scripts/run.sh, into the folder above scripts/";
  if (file.find(' ') != std::string::npos)
    text += "; for several files give a list, as in [\"a\",\"b\"]";
  return text;
}

}  // namespace

void require_no_weights(const DataKey& key, const char* remedy) {
  for (const std::string& file : key.files)
    if (begins_with_weight(file) && (key.files.size() > 1 || file.find(' ') != std::string::npos) &&
        !is_there(file + key.ending))
      throw_error(ExitCode::kUsage,
                  "{} = [\"{}\"]: {} is a weight, and blends by weight are not supported; {}",
                  key.name, fmt::join(key.files, "\",\""), file.substr(0, file.find(' ')), remedy);
}

void throw_unopened(const DataKey& key, const std::string& file, const Error& error) {
  throw_error(error.code(), "{}: {}{}", key.name, error.what(),
              is_there(file + key.ending) ? "" : about_missing(key, file));
}

}  // namespace tandem
