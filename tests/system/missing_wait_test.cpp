// A wait that is missing shows at run time: with poisoned memory the lane that did not wait for an
// all-to-all computes with NaN.
#include <catch2/catch.hpp>

#include "one_rank.h"

namespace tandem {
namespace {

TEST_CASE("without any one wait for an all-to-all the step computes with poison") {
  const RunConfig config = paired_step();
  const Program program = program_of(config);
  REQUIRE(runs_well(config, program));
  int removed = 0;
  for (const std::size_t wait : waits_of(program)) {
    const Instr& instr = program.instrs[wait];
    if (instr.lane != Lane::kCompute || instr.event.lane != Lane::kEp) continue;
    INFO("without line " << wait + 2 << ", before " << to_text(program, program.instrs[wait + 1]));
    CHECK_FALSE(runs_well(config, without(program, wait)));
    ++removed;
  }
  CHECK(removed >= 12);
}

}  // namespace
}  // namespace tandem
