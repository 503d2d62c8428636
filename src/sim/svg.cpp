// The picture of modelled programs.
#include <fmt/core.h>

#include <utility>

#include "tandem/base/units.h"
#include "tandem/sim/chart.h"
#include "tandem/sim/simulate.h"

namespace tandem {
namespace {

std::string tooltip(const Program& program, const Instr& instr, const Span& span) {
  std::string what{name_of(instr.op)};
  if (instr.op == Op::kRun) what = fmt::format("{} {}", name_of(instr.node), name_of(instr.phase));
  what += fmt::format(", stage {} {}", program.stage, name_of(instr.lane));
  if (instr.chunk >= 0) what += fmt::format(", chunk {}", instr.chunk);
  if (instr.microbatch >= 0) what += fmt::format(", micro-batch {}", instr.microbatch);
  if (instr.layer >= 0) what += fmt::format(", layer {}", instr.layer);
  return what + fmt::format(", {:.1f} to {:.1f} \u00b5s", span.begin_us, span.end_us);
}

}  // namespace

std::string summary_text(const SimResult& result) {
  const ComputeIdle& idle = result.idle;
  std::string causes;
  for (const auto& [name, share] : {std::pair("all-to-all", idle.alltoall),
                                    {"pipeline", idle.pipeline},
                                    {"gradient sync", idle.grad_sync}})
    if (share >= 0.0005)
      causes += fmt::format("{}{} {:.1f}", causes.empty() ? "" : ", ", name, 100.0 * share);
  std::string text = fmt::format("step {}, compute idle {:.1f} %",
                                 time_text(result.step_us, result.step_us), 100.0 * idle.total());
  if (!causes.empty()) text += fmt::format(" ({})", causes);
  if (result.ep_us > 0.0)
    text += fmt::format(", expert all-to-all {:.1f} % hidden under compute",
                        100.0 * result.hidden_share());
  return text;
}

std::string to_svg(const std::vector<Program>& by_stage, const SimResult& result,
                   const std::string& title, const std::string& about) {
  Chart chart;
  chart.title = title;
  chart.summary = summary_text(result);
  chart.hint = "numbers are micro-batches; modelled, not measured: " + about;
  chart.end_us = result.step_us;
  for (const Program& program : by_stage) {
    ChartBand& band =
        chart.bands.emplace_back(ChartBand{fmt::format("stage {}", program.stage), {}});
    for (int lane = 0; lane < kNumLanes; ++lane) {
      const auto which = static_cast<Lane>(lane);
      band.rows.push_back(
          {std::string(name_of(which)), which == Lane::kCompute || which == Lane::kEp, {}});
    }
  }
  for (const Span& span : result.spans) {
    const auto stage = static_cast<std::size_t>(span.stage);
    const Instr& instr = by_stage[stage].instrs[static_cast<std::size_t>(span.instr)];
    ChartBox box{.begin_us = span.begin_us,
                 .end_us = span.end_us,
                 .tone = tone_of(instr.op, instr.node, instr.phase),
                 .dir = instr.dir,
                 .labels = {},
                 .tooltip = tooltip(by_stage[stage], instr, span)};
    if (instr.microbatch >= 0) box.labels.push_back(std::to_string(instr.microbatch));
    chart.bands[stage].rows[static_cast<std::size_t>(span.lane)].boxes.push_back(std::move(box));
  }
  return to_svg(chart);
}

}  // namespace tandem
