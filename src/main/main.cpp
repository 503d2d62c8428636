// tandem: pre-trains mixture-of-experts language models.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.h"
#include "standard_output.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/nearest.h"
#include "tandem/config/load.h"
#include "version.h"

namespace {

using tandem::ConfigArgs;

constexpr int kMostRanks = 1 << 18, kMostThreads = 1 << 10;

// A name that a script left empty must not pass for one that was not given.
CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? "an empty name; give one" : ""; },
          ""};
}

// The usual check lets NaN pass.
CLI::Validator number_in(double low, double high) {
  return {[=](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            return is_number && value >= low && value <= high
                       ? std::string()
                       : fmt::format("{} is no number in [{}, {}]", text, low, high);
          },
          ""};
}

// The usual check calls a word outside the range.
CLI::Validator integer_in(int low, int high) {
  return {[=](const std::string& text) {
            std::int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            if (stop != end || error == std::errc::invalid_argument)
              return fmt::format("{} is not an integer", text);
            return error == std::errc() && value >= low && value <= high
                       ? std::string()
                       : fmt::format("{} is outside [{}, {}]", text, low, high);
          },
          ""};
}

void add_config_args(CLI::App& command, ConfigArgs& args) {
  command.add_option("CONFIG", args.path, "JSON file; every key is in docs/CONFIG.md")
      ->required()
      ->check(not_empty());
  command.add_option("OVERRIDE", args.overrides, "section.key=value, stronger than the file");
}

void add_ranks(CLI::App& command, ConfigArgs& args, int most, const char* help) {
  command.add_option("--ranks", args.ranks, help)->check(integer_in(1, most));
}

void add_json(CLI::App& command, std::string& json) {
  command
      .add_option("--json", json,
                  "write what the tables say to this file; -: print it instead of them")
      ->check(not_empty());
}

// The machine that is modelled.
void add_machine(CLI::App& command, tandem::MachineModel& machine) {
  const auto add = [&](const char* name, double& value, const char* help) {
    command.add_option(name, value, help)->check(number_in(1e-6, 1e9))->capture_default_str();
  };
  add("--tflops", machine.tflops, "modelled: sustained TFLOP/s of a rank");
  add("--gb-per-s", machine.gb_per_s,
      "modelled: GB/s of a rank to others; about 250 over NVLink inside a host of H200s, 50 over a "
      "400 Gb/s adapter a GPU between hosts");
  add("--latency-us", machine.latency_us, "modelled: added to every node and message");
}

// "help train" is "train --help".
std::vector<const char*> with_help_as_option(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(words[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.insert(words.begin() + std::min<std::ptrdiff_t>(2, std::ssize(words)), "--help");
  return words;
}

// CLI11 would only say that a subcommand is required.
void require_known_command(CLI::App& app, const std::vector<const char*>& words) {
  if (words.size() < 2 || words[1][0] == '-') return;
  std::vector<std::string_view> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), words[1]) != names.end()) return;
  const std::string_view near = tandem::nearest_name(words[1], names);
  tandem::throw_error(tandem::ExitCode::kUsage,
                      "there is no command \"{}\"{}; tandem --help lists them", words[1],
                      near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

// What was meant by an option that does not exist, with what goes before it; "" if it is like none.
std::string option_hint(const CLI::App& asked, const std::string& typed) {
  const std::size_t begin = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string name = typed.substr(begin, typed.find('=') - begin);
  const bool has_config = asked.get_option_no_throw("CONFIG") != nullptr;
  if (has_config && (name == "config" || name == "c" || name == "config-file"))
    return fmt::format("; the config file goes without one, as in tandem {} FILE",
                       asked.get_name());
  const bool has_keys = asked.get_option_no_throw("OVERRIDE") != nullptr;
  if (const std::string key = tandem::known_key(name); has_keys && !key.empty()) {
    const std::size_t equals = typed.find('=');
    return fmt::format(
        "; leave out the {}: {}={}", typed.substr(0, begin), key,
        equals == std::string::npos ? "VALUE" : tandem::excerpt(typed.substr(equals + 1)));
  }
  std::vector<std::string_view> names;
  for (const CLI::Option* option : asked.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back(known);
  const bool has_ranks = std::find(names.begin(), names.end(), "ranks") != names.end();
  if (has_ranks && (name == "np" || name == "n" || name.starts_with("nproc")))
    return "; give --ranks N, or start with mpirun -np N before tandem";
  const std::string_view near = tandem::nearest_name(name, names);
  if (!near.empty()) return fmt::format(" (did you mean --{}?)", near);
  if (!has_keys) return "";
  const std::string hint = tandem::key_hint(name);
  return fmt::format("{}{}; keys of the config go as section.key=value, as in model.layers=4",
                     hint.empty() ? "" : "; ", hint);
}

// CLI11's complaint in the form of all errors, with the way out.
[[noreturn]] void throw_usage(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const CLI::App& asked = commands.empty() ? app : *commands.front();
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = app.remaining(true);
    if (!extras.empty() && extras[0].starts_with('-'))
      what = "there is no option " + tandem::excerpt(extras[0]) + option_hint(asked, extras[0]);
  }
  tandem::throw_error(tandem::ExitCode::kUsage, "{}; tandem {}--help lists the options", what,
                      commands.empty() ? "" : asked.get_name() + " ");
}

int dispatch(int argc, char** argv) {
  CLI::App app{
      "Tandem pre-trains mixture-of-experts language models.\n"
      "Example: mpirun -np 4 --bind-to none tandem train configs/demo.json train.steps=50\n"
      "(without --bind-to none mpirun binds each rank to one core)"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("tandem {}", tandem::kVersion));
  app.footer(
      "tandem help COMMAND: the options of a command.\n"
      "Exit codes: 0 done, 2 bad usage or config, 3 bad input file or checkpoint, or output that "
      "cannot be written,\n4 training went wrong, 5 communication failed or timed out, 6 out of "
      "memory or threads.");

  ConfigArgs train;
  tandem::ReportArgs plan, check;
  tandem::ScheduleArgs schedule;
  tandem::TraceArgs trace;
  tandem::TokenizeArgs tokenize;
  tandem::BenchArgs bench;

  auto* train_command = app.add_subcommand("train", "Train a model");
  add_config_args(*train_command, train);
  add_ranks(*train_command, train, kMostThreads,
            "run N ranks as threads of this process, without mpirun");
  train_command->footer("Example: tandem train configs/smoke.json --ranks 4 train.steps=20");

  auto* plan_command = app.add_subcommand("plan", "Grid, partition, parameters, FLOPs and memory");
  add_config_args(*plan_command, plan.config);
  add_ranks(*plan_command, plan.config, kMostRanks, "plan for N ranks");
  add_json(*plan_command, plan.json);
  plan_command->footer("Example: tandem plan configs/qwen3-30b-a3b.json --ranks 64");

  auto* schedule_command =
      app.add_subcommand("schedule", "Show the program of a pipeline stage, and model a step");
  add_config_args(*schedule_command, schedule.config);
  add_ranks(*schedule_command, schedule.config, kMostRanks, "plan for N ranks");
  schedule_command->add_option("--stage", schedule.stage, "pipeline stage to show")
      ->check(integer_in(0, std::numeric_limits<int>::max()));
  schedule_command->add_flag("--text", schedule.text, "print the program line by line");
  schedule_command->add_option("--svg", schedule.svg, "write a picture of all stages to this file")
      ->check(not_empty());
  add_json(*schedule_command, schedule.json);
  add_machine(*schedule_command, schedule.machine);
  schedule_command->add_option("--width", schedule.width, "columns of the chart")
      ->check(integer_in(20, 10000));
  schedule_command->add_option("--from", schedule.from, "first unit of the chart")
      ->check(integer_in(0, std::numeric_limits<int>::max()));
  schedule_command->add_flag("--all", schedule.all,
                             "every task and unit, also of a program too long to be read");
  schedule_command->footer("Example: tandem schedule configs/demo.json --svg demo.svg");

  auto* check_command = app.add_subcommand("check", "Prove the programs of all ranks");
  add_config_args(*check_command, check.config);
  add_ranks(*check_command, check.config, kMostRanks, "check for N ranks");
  add_json(*check_command, check.json);
  check_command->footer("Example: tandem check configs/qwen3-235b-a22b.json --ranks 1024");

  auto* trace_command = app.add_subcommand("trace", "Tables and a picture of a measured trace");
  trace_command->add_option("FILE", trace.path, "a file that logging.trace wrote")
      ->required()
      ->check(not_empty());
  auto* svg = trace_command->add_option("--svg", trace.svg, "write a picture to this file")
                  ->check(not_empty());
  constexpr double kMostMs = 1e9, kLeastMs = 1e-6;  // 12 days, a nanosecond
  auto* from = trace_command->add_option("--from", trace.from_ms, "first millisecond shown")
                   ->check(number_in(0, kMostMs));
  auto* to = trace_command->add_option("--to", trace.to_ms, "last millisecond shown")
                 ->check(number_in(0, kMostMs));
  auto* around = trace_command
                     ->add_option("--around", trace.around,
                                  "show the surroundings of a node, as dispatch_fwd or "
                                  "\"dispatch_fwd L1 mb2\"")
                     ->check(not_empty());
  trace_command->add_option("--width", trace.width_ms, "how many milliseconds of them")
      ->needs(around)
      ->check(number_in(kLeastMs, kMostMs));
  around->excludes(from)->excludes(to);
  // The tables are of the whole trace.
  for (auto* of_picture : {from, to, around}) of_picture->needs(svg);
  trace_command->footer(
      "Example: tandem trace trace-rank0.json --svg trace.svg --around dispatch_fwd");

  auto* tokenize_command =
      app.add_subcommand("tokenize", "Bytes of text files to a .bin/.idx pair");
  tokenize_command->add_option("PREFIX", tokenize.prefix, "writes PREFIX.bin and PREFIX.idx")
      ->required()
      ->check(not_empty());
  tokenize_command->add_option("FILES", tokenize.inputs, "text files, one document each")
      ->required()
      ->check(not_empty());
  tokenize_command->footer(
      "Example: split -n l/12 data/kjv.txt runs/part- && tandem tokenize runs/kjv runs/part-*\n"
      "Documents are held out whole, here by data.split=10,2,0: give several files, or train with\n"
      "data.valid=PREFIX of another pair, or with train.eval_every=0.");

  auto* bench_command = app.add_subcommand("bench", "Time products, ops, steps and exchanges");
  bench_command
      ->add_option("NAME", bench.name, "gemm, grouped, attention, layer, slice or alltoall")
      ->required();
  bench_command->add_option("CONFIG", bench.config.path, "JSON file; without it the defaults")
      ->check(not_empty());
  bench_command->add_option("OVERRIDE", bench.config.overrides,
                            "section.key=value, stronger than the file");
  add_json(*bench_command, bench.json);
  bench_command->add_option("--repeats", bench.repeats, "timed executions of everything")
      ->check(integer_in(1, 100000));
  add_ranks(*bench_command, bench.config, kMostThreads,
            "slice, alltoall: run N ranks as threads of this process, without mpirun");
  bench_command->footer(
      "gemm       the dense products of the model, forward and both backward ways\n"
      "grouped    the experts' products, even and uneven\n"
      "attention  the attention core\n"
      "layer      every op of a layer, of embedding and head\n"
      "slice      training steps of the config\n"
      "alltoall   rows between the ranks, and a product beside them\n"
      "Example: tandem bench layer configs/qwen3-30b-a3b.json --json layer.json");
  for (int i = 0; i < argc; ++i) bench.command += (i > 0 ? " " : "") + std::string(argv[i]);

  auto* version_command = app.add_subcommand("version", "Version and what this build can do");

  const std::vector<const char*> words = with_help_as_option(argc, argv);
  require_known_command(app, words);
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw_usage(app, error);
  }
  if (*train_command) return tandem::run_train(train);
  if (*plan_command) return tandem::run_plan(plan);
  if (*schedule_command) return tandem::run_schedule(schedule);
  if (*check_command) return tandem::run_check(check);
  if (*trace_command) return tandem::run_trace(trace);
  if (*tokenize_command) return tandem::run_tokenize(tokenize);
  if (*bench_command) return tandem::run_bench(std::move(bench));
  if (*version_command) return tandem::run_version();
  return static_cast<int>(tandem::ExitCode::kUsage);
}

// As dispatch(), with errors said and turned into exit codes.
int guarded(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const tandem::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of host memory\n");
    return static_cast<int>(tandem::ExitCode::kMemory);
  } catch (const std::exception& error) {
    // fmt::print, whose output is lost: main() tells.
    const bool of_print = dynamic_cast<const std::system_error*>(&error) != nullptr;
    if (of_print && std::ferror(stdout) != 0) return 0;
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(tandem::ExitCode::kInternal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!tandem::open_standard_streams()) return static_cast<int>(tandem::ExitCode::kBadInput);
  return tandem::with_output_written(guarded(argc, argv));
}
