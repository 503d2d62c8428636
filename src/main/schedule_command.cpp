#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "commands.h"
#include "json_report.h"
#include "output_file.h"
#include "tandem/base/atomic_file.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/config/load.h"
#include "tandem/schedule/lower.h"
#include "tandem/schedule/policy.h"
#include "tandem/schedule/print.h"
#include "tandem/sim/cost_model.h"
#include "tandem/sim/simulate.h"

namespace tandem {
namespace {

constexpr double kUsPerSecond = 1e6;

int terminal_width() {
  constexpr int kDefaultWidth = 120, kLeast = 20;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
             ? std::max<int>(kLeast, size.ws_col)
             : kDefaultWidth;
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

// A step on the modelled machine.
struct ModelledStep {
  SimResult result;
  double tokens_per_s = 0;
  std::string machine;
};

ModelledStep modelled(const RunConfig& config, const MachineModel& machine,
                      const std::vector<Program>& programs) {
  ModelledStep step{.result = simulate(programs, cost_model(config, machine)), .machine = {}};
  if (config.parallel.ep == 1) step.result.ep_us = 0.0;  // no rows go between ranks
  const double tokens = static_cast<double>(config.train.global_batch) * config.train.seq_len;
  step.tokens_per_s = tokens / (step.result.step_us / kUsPerSecond);
  step.machine = fmt::format("{:g} TFLOP/s and {:g} GB/s a rank, {:g} us a node or message",
                             machine.tflops, machine.gb_per_s, machine.latency_us);
  return step;
}

void write_svg(const std::string& file, const RunConfig& config,
               const std::vector<Program>& programs, const ModelledStep& step) {
  const std::string title =
      fmt::format("Modelled: pp {} x vpp {}, ep {}, {} micro-batches, overlap {}",
                  config.parallel.pp, config.parallel.vpp, config.parallel.ep,
                  config.microbatches(), config.overlap.enabled ? "on" : "off");
  replace_file(file, to_svg(programs, step.result, title, step.machine));
}

void print_modelled(const RunConfig& config, const ModelledStep& step) {
  fmt::print(
      "{}, {:.0f} tokens/s on {} rank{}\nmodelled, not measured: {} (--tflops, --gb-per-s, "
      "--latency-us)\n",
      summary_text(step.result), step.tokens_per_s, config.world(), config.world() == 1 ? "" : "s",
      step.machine);
}

void write_report(const ScheduleArgs& args, const RunConfig& config,
                  const std::vector<Program>& programs, const ModelledStep& step) {
  JsonWriter json = begin_report("schedule", config);
  json.key("machine").begin_object().key("flop_per_s").value(args.machine.tflops * 1e12);
  json.key("bytes_per_s").value(args.machine.gb_per_s * 1e9);
  json.key("latency_s").value(args.machine.latency_us / kUsPerSecond).end_object();
  const SimResult& result = step.result;
  json.key("modelled").begin_object().key("step_s").value(result.step_us / kUsPerSecond);
  json.key("tokens_per_s").value(step.tokens_per_s);
  json.key("compute_idle_share").value(result.idle.total());
  json.key("alltoall_idle_share").value(result.idle.alltoall);
  json.key("pipeline_idle_share").value(result.idle.pipeline);
  json.key("grad_sync_idle_share").value(result.idle.grad_sync);
  json.key("alltoall_hidden_share");
  result.ep_us > 0.0 ? json.value(result.hidden_share()) : json.null();
  json.end_object().key("stages").begin_array();
  const PipelineShape shape = lower_options(config).shape;
  for (const Program& program : programs) {
    json.begin_object().key("stage").value(program.stage);
    json.key("instructions").value(program.instrs.size());
    json.key("tasks").value(task_line(training_order(shape, program.stage))).end_object();
  }
  json.end_array();
  end_report(json, args.json);
}

}  // namespace

int run_schedule(const ScheduleArgs& args) {
  require_other_file("--svg", args.svg, args.config.path);
  require_other_file("--json", args.json, args.config.path);
  const RunConfig config = planned_config(args.config);
  if (args.stage < 0 || args.stage >= config.parallel.pp)
    throw_error(ExitCode::kUsage, "--stage {}: the config has stages 0 to {}", args.stage,
                config.parallel.pp - 1);
  const auto programs = build_programs(lower_options(config), ProgramKind::kTraining);
  const Program& program = programs[static_cast<std::size_t>(args.stage)];
  const ModelledStep step = modelled(config, args.machine, programs);
  if (!args.svg.empty()) write_svg(args.svg, config, programs, step);
  if (!args.json.empty()) write_report(args, config, programs, step);
  if (instead_of_tables(args.json)) return 0;
  if (args.text) {
    fmt::print("{}", to_text(program));
    return 0;
  }
  if (args.svg.empty()) {
    const int width = args.width > 0 ? args.width : terminal_width();
    print_tasks(config, width, args.all);
    print_lanes(config, program, args, width);
    fmt::print("\n");
  } else {
    fmt::print("{}: ", args.svg);
  }
  print_modelled(config, step);
  return 0;
}

}  // namespace tandem
