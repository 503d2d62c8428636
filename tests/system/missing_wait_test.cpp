// A wait that is missing shows at run time: when the lane that should be waited for is late, the
// other computes with poison, or with values that are not there yet.
#include <catch2/catch.hpp>

#include "one_rank.h"

namespace tandem {
namespace {

// A race may end well by chance, when the machine holds the other lane up just as long. A wait that
// is needed shows within a few tries; one that is not would never.
bool noticed(const RunConfig& config, const Program& program, std::size_t wait,
             const StepOutcome& expected) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i)
    if (!(run_step(config, without(program, wait), program.instrs[wait].event.lane) == expected))
      return true;
  return false;
}

TEST_CASE("without any one wait the step computes with poison or with the wrong values") {
  const RunConfig config = paired_step();
  const Program program = program_of(config);
  const StepOutcome expected = run_step(config, program, Lane::kHost);  // no lane is slow
  for (const Lane slow : {Lane::kCompute, Lane::kEp, Lane::kDp})
    REQUIRE(run_step(config, program, slow) == expected);
  const auto waits = waits_of(program);
  REQUIRE(waits.size() > 30);
  for (const std::size_t wait : waits) {
    INFO("without line " << wait + 2 << " [" << to_text(program, program.instrs[wait])
                         << "], before " << to_text(program, program.instrs[wait + 1]));
    CHECK(noticed(config, program, wait, expected));
  }
}

}  // namespace
}  // namespace tandem
