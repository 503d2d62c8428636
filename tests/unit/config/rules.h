// What the tests of the rules share: configs from overrides, and the violations found in them.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/config/load.h"

namespace tandem {

using Overrides = std::vector<std::string>;

inline RunConfig config_of(const Overrides& overrides) {
  return parse_config("{}", "t", overrides);
}

// The violations of a config, and whether resolve() agrees that there are any.
inline std::vector<std::string> found(const Overrides& overrides, int world) {
  const RunConfig config = config_of(overrides);
  const std::vector<std::string> all = violations(config, world);
  if (all.empty())
    CHECK_NOTHROW(resolve(config, world));
  else
    CHECK_THROWS_AS(resolve(config, world), Error);
  return all;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

struct Case {
  Overrides overrides;
  int world;
  const char* expected;  // the whole violation
};

inline void check_each_fires_alone(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    INFO(c.expected);
    const std::vector<std::string> all = found(c.overrides, c.world);
    INFO(joined(all));
    REQUIRE(all.size() == 1);
    CHECK(all[0] == c.expected);
  }
}

}  // namespace tandem
