#include "tandem/comm/shared_error.h"

#include <catch2/catch.hpp>

#include <vector>

namespace tandem {
namespace {

// What each of three ranks ends with when those in `failing` fail with their texts.
std::vector<std::string> ends(const std::vector<std::string>& failing) {
  std::vector<std::string> texts(3);
  const auto body = [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    try {
      const int result = together(world, [&] {
        if (!failing[rank].empty()) throw_error(ExitCode::kBadInput, "{}", failing[rank]);
        return 7;
      });
      texts[rank] = std::to_string(result);
    } catch (const SharedError& error) {
      texts[rank] = error.what();
      CHECK(error.code() == ExitCode::kBadInput);
      throw;
    }
  };
  try {
    run_as_threads(3, body);
  } catch (const SharedError&) {
    return texts;
  }
  return texts;
}

TEST_CASE("what fails on any rank fails on all, with one text") {
  using Texts = std::vector<std::string>;
  CHECK(ends({"", "", ""}) == Texts{"7", "7", "7"});
  CHECK(ends({"no file", "no file", "no file"}) == Texts{"no file", "no file", "no file"});
  CHECK(ends({"", "disk full", ""}) == Texts(3, "rank 1: disk full"));
  CHECK(ends({"", "one", "two"}) == Texts(3, "rank 1: one"));
}

}  // namespace
}  // namespace tandem
