#include "tandem/schedule/check.h"

#include <algorithm>
#include <string_view>

#include "check_findings.h"
#include "tandem/base/error.h"
#include "tandem/schedule/replay.h"

namespace tandem {
namespace checking {

std::string locate(const Program& program, std::int32_t instr) {
  return fmt::format("stage {} line {} [{}]", program.stage, instr + 2,  // line 1 is the header
                     to_text(program, program.instrs[instr]));
}

namespace {

// The checks index flat arrays by these fields, so they must be in range before anything else.
void require_well_formed(const Program& program, std::size_t stage) {
  TANDEM_CHECK(program.stage == static_cast<int>(stage), "programs must be given in stage order");
  const auto slots = static_cast<std::int32_t>(program.slots.size());
  for (const Slot& slot : program.slots) {
    TANDEM_CHECK(slot.buffer < program.num_buffers, "stage {}: a slot beyond the last buffer",
                 stage);
  }
  for (const Instr& instr : program.instrs) {
    for (const SlotAccess& use : instr.uses) {
      const bool known = use.slot >= 0 && use.slot < slots;
      TANDEM_CHECK(known, "stage {}: {} uses slot {} of {}", stage, name_of(instr.op), use.slot,
                   slots);
    }
  }
}

}  // namespace

void check_progress(const std::vector<Program>& by_stage, Findings& findings) {
  const Replay run = replay(
      by_stage, [](const Program&, const Instr&) { return 0.0; }, Peers::kAll);
  for (std::size_t begin = 0, end = 0; begin < run.stuck.size(); begin = end) {
    const int stage = run.stuck[begin].stage;
    while (end < run.stuck.size() && run.stuck[end].stage == stage) ++end;
    findings.add(Finding::Kind::kDeadlock, stage, [&] {
      std::string text = fmt::format("stage {} can never finish; its lanes stop at ", stage);
      for (std::size_t i = begin; i < end; ++i)
        text +=
            fmt::format("{}{}", i > begin ? "; " : "", locate(by_stage[stage], run.stuck[i].instr));
      return text;
    });
  }
}

}  // namespace checking

CheckReport check_programs(const std::vector<Program>& by_stage, int max_findings) {
  CheckReport report;
  checking::Findings findings(report, max_findings);
  for (std::size_t s = 0; s < by_stage.size(); ++s) checking::require_well_formed(by_stage[s], s);
  for (const Program& program : by_stage) checking::check_order(program, findings, report);
  checking::check_transfers(by_stage, findings);
  checking::check_collectives(by_stage, findings);
  checking::check_progress(by_stage, findings);
  return report;
}

}  // namespace tandem
