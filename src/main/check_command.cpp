#include <fmt/core.h>

#include <array>
#include <chrono>

#include "commands.h"
#include "json_report.h"
#include "output_file.h"
#include "tandem/base/error.h"
#include "tandem/schedule/check.h"
#include "tandem/schedule/lower.h"

namespace tandem {
namespace {

struct Family {
  const char* name;
  ProgramKind kind;
  EventMode events;
};
constexpr std::array<Family, 3> kFamilies = {{
    {"training, per-direction", ProgramKind::kTraining, EventMode::kPerDirection},
    {"training, shared event", ProgramKind::kTraining, EventMode::kShared},
    {"evaluation", ProgramKind::kEvaluation, EventMode::kPerDirection},
}};

CheckReport checked(const RunConfig& config, const Family& family) {
  LowerOptions options = lower_options(config);
  options.events = family.events;
  return check_programs(build_programs(options, family.kind));
}

void print_report(const char* what, const CheckReport& report) {
  fmt::print(
      "{:<28} {:>9} instructions {:>7} waits {:>7} records {:>6} cross-direction waits   {}\n",
      what, report.instrs, report.waits, report.records, report.cross_direction_waits,
      report.ok() ? "sound" : fmt::format("{} FINDINGS", report.total_findings));
  for (const Finding& finding : report.findings)
    fmt::print("  stage {}: {}\n", finding.stage, finding.what);
}

void write_report(JsonWriter& json, const char* what, const CheckReport& report) {
  json.begin_object().key("programs").value(what).key("instructions").value(report.instrs);
  json.key("waits").value(report.waits).key("records").value(report.records);
  json.key("cross_direction_waits").value(report.cross_direction_waits);
  json.key("total_findings").value(report.total_findings).key("findings").begin_array();
  for (const Finding& finding : report.findings)
    json.begin_object()
        .key("stage")
        .value(finding.stage)
        .key("what")
        .value(finding.what)
        .end_object();
  json.end_array().end_object();
}

}  // namespace

int run_check(const ReportArgs& args) {
  require_other_file("--json", args.json, args.config.path);
  const auto begin = std::chrono::steady_clock::now();
  const RunConfig config = planned_config(args.config);
  const bool tables = !instead_of_tables(args.json);
  if (tables)
    fmt::print("{} ranks: pp {} x dp {}, vpp {}, ep {}, {} micro-batches\n", config.world(),
               config.parallel.pp, config.parallel.dp, config.parallel.vpp, config.parallel.ep,
               config.microbatches());
  JsonWriter json = begin_report("check", config);
  json.key("families").begin_array();
  bool sound = true;
  for (const Family& family : kFamilies) {
    const CheckReport report = checked(config, family);
    sound &= report.ok();
    if (tables) print_report(family.name, report);
    write_report(json, family.name, report);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  json.end_array().key("sound").value(sound).key("check_s").value(seconds);
  if (tables) fmt::print("{} in {:.2f} s\n", sound ? "no findings" : "FINDINGS", seconds);
  if (!args.json.empty()) end_report(json, args.json);
  return static_cast<int>(sound ? ExitCode::kOk : ExitCode::kInternal);
}

}  // namespace tandem
