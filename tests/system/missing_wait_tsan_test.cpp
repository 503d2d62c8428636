// Built with ThreadSanitizer only: it sees the races of steps without a wait. Not all of them: the
// lock of a lane's queue orders what the wait would have, where the host happens to come between.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>

#include "one_rank.h"

namespace {

std::atomic<int>& reports() {
  static std::atomic<int> count{0};
  return count;
}

}  // namespace

extern "C" {

// ThreadSanitizer's own hooks. The reports are what this program is about: they are counted, each
// one anew for every program, and do not fail it.
void __tsan_on_report(void*) {
  reports().fetch_add(1);
}
const char* __tsan_default_options() {
  return "halt_on_error=0:exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0:"
         "report_signal_unsafe=0:symbolize=0";
}
}

namespace tandem {
namespace {

TEST_CASE("ThreadSanitizer reports missing waits") {
  const RunConfig config = paired_step();
  const Program program = program_of(config);
  const auto races = [&](const Program& changed, Lane slow) {
    const int before = reports().load();
    (void)run_step(config, changed, slow);
    return reports().load() - before;
  };
  for (const Lane slow : {Lane::kCompute, Lane::kEp, Lane::kDp}) REQUIRE(races(program, slow) == 0);
  std::size_t seen = 0;
  const auto waits = waits_of(program);
  for (const std::size_t wait : waits)
    seen += races(without(program, wait), program.instrs[wait].event.lane) > 0 ? 1 : 0;
  std::printf("ThreadSanitizer saw %zu of %zu missing waits\n", seen, waits.size());
  CHECK(2 * seen > waits.size());
}

}  // namespace
}  // namespace tandem
