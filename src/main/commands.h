// The subcommands. Each returns the process's exit code and throws Error for everything else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/sim/cost_model.h"

namespace tandem {

struct ConfigArgs {
  std::string path;                    // "" = defaults
  std::vector<std::string> overrides;  // "section.key=value"
  int ranks = 0;                       // 0 = what the config names (train: what mpirun started)
};

struct ReportArgs {
  ConfigArgs config;
  std::string json;  // file for what the tables say, "-" = instead of them; "" = none
};

struct ScheduleArgs {
  ConfigArgs config;
  std::string json;      // as of ReportArgs
  int stage = 0;
  bool text = false;     // the program itself, line by line
  std::string svg;       // file for a picture of all stages
  MachineModel machine;  // that is modelled
  int width = 0;         // columns of the chart; 0 = the terminal's
  int from = 0;          // first unit of the chart
  bool all = false;      // also what is too much to take in
};

struct TraceArgs {
  std::string path;                       // a file that logging.trace wrote
  std::string svg;                        // file for the picture; "" = none
  std::optional<double> from_ms, to_ms;   // what it shows, since the first event
  std::string around;                     // or the surroundings of a node; "" = none
  std::optional<double> width_ms;         // of those
};

struct TokenizeArgs {
  std::vector<std::string> inputs;  // text files, one document each
  std::string prefix;               // writes prefix.bin and prefix.idx
};

struct BenchArgs {
  std::string name;  // which benchmark
  ConfigArgs config;
  std::string json;  // file for the rows; "" = none
  int repeats = 20;
  std::string command;  // as typed
};

// An override where the file belongs is one of the defaults, unless a file comes after it.
void take_override_without_file(ConfigArgs& args);

// The config planned for args.ranks ranks; without --ranks for the size it names itself. Needs no
// file.
RunConfig planned_config(ConfigArgs args);

int run_train(const ConfigArgs& args);
int run_plan(const ReportArgs& args);
int run_schedule(const ScheduleArgs& args);
int run_check(const ReportArgs& args);
int run_trace(const TraceArgs& args);
int run_tokenize(const TokenizeArgs& args);
int run_bench(BenchArgs args);
int run_version();

}  // namespace tandem
