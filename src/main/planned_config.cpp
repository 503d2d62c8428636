#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "tandem/config/load.h"

namespace tandem {

void take_override_without_file(ConfigArgs& args) {
  if (args.path.find('=') == std::string::npos || std::filesystem::exists(args.path)) return;
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
