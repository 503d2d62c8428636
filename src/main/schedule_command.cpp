#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "commands.h"
#include "output_file.h"
#include "tandem/base/atomic_file.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/config/load.h"
#include "tandem/schedule/check.h"
#include "tandem/schedule/lower.h"
#include "tandem/schedule/policy.h"
#include "tandem/schedule/print.h"
#include "tandem/sim/cost_model.h"
#include "tandem/sim/simulate.h"

namespace tandem {
namespace {

std::vector<Program> build_all(const RunConfig& config, ProgramKind kind, EventMode events) {
  LowerOptions options = lower_options(config);
  options.events = events;
  return build_programs(options, kind);
}

int terminal_width() {
  constexpr int kDefaultWidth = 120;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : kDefaultWidth;
}

void write_svg(const ScheduleArgs& args, const RunConfig& config,
               const std::vector<Program>& programs) {
  const SimResult result = simulate(programs, cost_model(config, args.machine));
  const std::string machine =
      fmt::format("{:g} TFLOP/s and {:g} GB/s a rank, {:g} us a node or message",
                  args.machine.tflops, args.machine.gb_per_s, args.machine.latency_us);
  const std::string title =
      fmt::format("Modelled: pp {} x vpp {}, ep {}, {} micro-batches, overlap {}; {}",
                  config.parallel.pp, config.parallel.vpp, config.parallel.ep,
                  config.microbatches(), config.overlap.enabled ? "on" : "off", machine);
  replace_file(args.svg, to_svg(programs, result, title));
  fmt::print("{}: {}\nmodelled, not measured: {} (--tflops, --gb-per-s, --latency-us)\n", args.svg,
             summary_text(result, config.parallel.pp), machine);
}

// What a reader can take in; --all shows the rest.
constexpr int kTaskRows = 2;  // of the terminal, for the tasks of a stage
constexpr int kTaskStages = 16;
constexpr int kChartUnits = 240;

// The line cut at a blank, with the number of tasks that are left out.
std::string cut_tasks(const std::string& line, int width) {
  const auto room = static_cast<std::size_t>(width) * kTaskRows;
  if (line.size() <= room) return line;
  const std::size_t end = line.rfind(' ', room);
  const auto left_out =
      std::count(line.begin() + static_cast<std::ptrdiff_t>(end), line.end(), 'c');
  return fmt::format("{} ... {} more", line.substr(0, end), left_out);
}

void print_tasks(const RunConfig& config, int width, bool all) {
  const PipelineShape shape = lower_options(config).shape;
  const int stages = all ? config.parallel.pp : std::min(config.parallel.pp, kTaskStages);
  for (int stage = 0; stage < stages; ++stage) {
    const std::string line =
        fmt::format("stage {}: {}", stage, task_line(training_order(shape, stage)));
    fmt::print("{}\n", all ? line : cut_tasks(line, width));
  }
  if (stages < config.parallel.pp) fmt::print("... {} more stages\n", config.parallel.pp - stages);
}

void print_lanes(const RunConfig& config, const Program& program, const ScheduleArgs& args,
                 int width) {
  const LaneChart chart(program);
  if (args.from >= chart.units())
    throw_error(ExitCode::kUsage, "--from {}: the program of stage {} has {} units", args.from,
                program.stage, chart.units());
  const UnitRange range{.from = args.from, .count = args.all ? 0 : kChartUnits};
  fmt::print("\nlanes of stage {}\n{}", program.stage, chart.text(width, colour_wanted(), range));
  if (args.all || chart.units() <= kChartUnits) return;
  fmt::print("\n{} of {} units. ", std::min(kChartUnits, chart.units() - args.from), chart.units());
  if (chart.first_backward() >= args.from + kChartUnits)
    fmt::print("--from {}: where backward work begins; ", chart.first_backward());
  else
    fmt::print("--from UNIT: a later part; ");
  fmt::print("--all: all of them, several to a cell; --svg FILE: a picture of all stages");
  // Each stage comes to its steady part, in whole groups.
  const int group = std::max(1, config.parallel.microbatch_group);
  const int enough = (2 * config.parallel.pp + group - 1) / group * group;
  if (config.microbatches() > enough)
    fmt::print("; train.global_batch={}: a step of {} micro-batches instead of {}",
               enough * config.parallel.dp * config.train.micro_batch, enough,
               config.microbatches());
  fmt::print(".\n");
}

bool report_check(const char* what, const std::vector<Program>& programs) {
  const CheckReport report = check_programs(programs);
  fmt::print(
      "{:<28} {:>9} instructions {:>7} waits {:>7} records {:>6} cross-direction waits   {}\n",
      what, report.instrs, report.waits, report.records, report.cross_direction_waits,
      report.ok() ? "sound" : fmt::format("{} FINDINGS", report.total_findings));
  for (const Finding& finding : report.findings)
    fmt::print("  stage {}: {}\n", finding.stage, finding.what);
  return report.ok();
}

}  // namespace

int run_schedule(const ScheduleArgs& args) {
  require_other_file("--svg", args.svg, args.config.path);
  const RunConfig config = planned_config(args.config);
  if (args.stage < 0 || args.stage >= config.parallel.pp)
    throw_error(ExitCode::kUsage, "--stage {}: the config has stages 0 to {}", args.stage,
                config.parallel.pp - 1);
  const auto programs = build_all(config, ProgramKind::kTraining, config.overlap.events);
  const Program& program = programs[static_cast<std::size_t>(args.stage)];
  if (!args.svg.empty()) write_svg(args, config, programs);
  if (args.text) {
    fmt::print("{}", to_text(program));
  } else if (args.svg.empty()) {
    const int width = args.width > 0 ? args.width : terminal_width();
    print_tasks(config, width, args.all);
    print_lanes(config, program, args, width);
  }
  return 0;
}

int run_check(const ConfigArgs& args) {
  const auto begin = std::chrono::steady_clock::now();
  const RunConfig config = planned_config(args);
  fmt::print("{} ranks: pp {} x dp {}, vpp {}, ep {}, {} micro-batches\n", config.world(),
             config.parallel.pp, config.parallel.dp, config.parallel.vpp, config.parallel.ep,
             config.microbatches());
  bool sound = report_check("training, per-direction",
                            build_all(config, ProgramKind::kTraining, EventMode::kPerDirection));
  sound &= report_check("training, shared event",
                        build_all(config, ProgramKind::kTraining, EventMode::kShared));
  sound &= report_check("evaluation",
                        build_all(config, ProgramKind::kEvaluation, EventMode::kPerDirection));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} in {:.2f} s\n", sound ? "no findings" : "FINDINGS", seconds);
  return static_cast<int>(sound ? ExitCode::kOk : ExitCode::kInternal);
}

}  // namespace tandem
