#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.h"
#include "tandem/config/load.h"

namespace tandem {
namespace {

bool is_override(const std::string& argument) {
  std::error_code ignored;  // of a value too long for a name
  return argument.find('=') != std::string::npos && !std::filesystem::exists(argument, ignored);
}

// Also of a file that is not there; other bare words are no overrides either, but no files.
bool looks_like_file(const std::string& argument) {
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) return true;
  return argument.find('=') == std::string::npos &&
         (argument.find('/') != std::string::npos || argument.ends_with(".json"));
}

}  // namespace

void take_override_without_file(ConfigArgs& args) {
  const std::vector<std::string>& rest = args.overrides;
  if (!is_override(args.path) || std::any_of(rest.begin(), rest.end(), looks_like_file)) return;
  args.overrides.insert(args.overrides.begin(), args.path);
  args.path.clear();
}

RunConfig planned_config(ConfigArgs args) {
  take_override_without_file(args);
  std::vector<std::string> warnings;
  RunConfig config = load_config(args.path, args.overrides, &warnings);
  const bool dp_given =
      std::any_of(args.overrides.begin(), args.overrides.end(),
                  [](const std::string& text) { return text.rfind("parallel.dp=", 0) == 0; });
  const int dp_of_file = dp_given ? 0 : config.parallel.dp;
  if (args.ranks > 0 && !dp_given) config.parallel.dp = 0;  // another size: dp follows from it
  const RunConfig planned = resolve(std::move(config), args.ranks, config_origin(args.path));
  if (args.ranks > 0 && dp_of_file != 0 && dp_of_file != planned.parallel.dp)
    fmt::print(stderr,
               "note: parallel.dp {} of {} replaced by {} for {} ranks; to train on them, set "
               "parallel.dp={}\n",
               dp_of_file, args.path, planned.parallel.dp, args.ranks, planned.parallel.dp);
  for (const std::string& line : warnings) fmt::print(stderr, "warning: {}\n", line);
  return planned;
}

}  // namespace tandem
