// Built with ThreadSanitizer only: without any one wait the step is a data race, and it is found.
#include <atomic>
#include <catch2/catch.hpp>

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
         "report_signal_unsafe=0";
}
}

namespace tandem {
namespace {

int races_of(const RunConfig& config, const Program& program) {
  const int before = reports().load();
  (void)runs_well(config, program);
  return reports().load() - before;
}

TEST_CASE("without any one wait ThreadSanitizer reports a race") {
  const RunConfig config = paired_step();
  const Program program = program_of(config);
  REQUIRE(races_of(config, program) == 0);
  const auto waits = waits_of(program);
  REQUIRE(waits.size() > 30);
  for (const std::size_t wait : waits) {
    INFO("without line " << wait + 2 << " [" << to_text(program, program.instrs[wait])
                         << "], before " << to_text(program, program.instrs[wait + 1]));
    CHECK(races_of(config, without(program, wait)) > 0);
  }
}

}  // namespace
}  // namespace tandem
