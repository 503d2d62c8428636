#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "commands.h"
#include "tandem/base/units.h"
#include "tandem/config/load.h"
#include "tandem/model/cost.h"
#include "tandem/model/params.h"
#include "tandem/plan/grid.h"
#include "tandem/plan/partition.h"
#include "tandem/schedule/lower.h"
#include "tandem/schedule/policy.h"
#include "tandem/schedule/rank_memory.h"

namespace tandem {
namespace {

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGib;
}

// 30.53 B, with the suffixes from 1 on, a thousand apart.
std::string shortened(double value, std::initializer_list<const char*> suffixes) {
  const auto* suffix = suffixes.begin();
  for (; value >= 1000.0 && suffix + 1 != suffixes.end(); ++suffix) value /= 1000.0;
  return fmt::format("{:.4g} {}", value, *suffix);
}

std::string parameters(std::int64_t count) {
  return shortened(static_cast<double>(count), {"", "K", "M", "B", "T"});
}

std::string flop(double count) {
  return shortened(count / 1e6, {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"});
}

std::int64_t rank_params(const ParamTable& table) {
  std::int64_t sum = 0;
  for (const Param& param : table.params) sum += param.size();
  return sum;
}

std::string layers_of(const Partition& partition, int stage) {
  std::string text;
  for (int chunk = 0; chunk < partition.vpp; ++chunk) {
    const ChunkPlan& plan = partition.at(stage, chunk);
    text += chunk > 0 ? " " : "";
    if (plan.has_embedding) text += "E+";
    text += plan.layers() == 0 ? "-" : fmt::format("{}..{}", plan.layer_begin, plan.layer_end - 1);
    if (plan.has_head) text += "+H";
  }
  return text;
}

void print_model(const RunConfig& config) {
  const ParamCount count = count_params(config.model);
  const double flops = flops_per_token(config);
  const double tokens = static_cast<double>(config.train.global_batch) * config.train.seq_len;
  fmt::print("model       {} layers, hidden {}, {} heads / {} kv, {} experts top-{}, vocab {}\n",
             config.model.layers, config.model.hidden, config.model.heads, config.model.kv_heads,
             config.model.experts, config.model.topk, config.model.vocab);
  fmt::print("parameters  {} total, {} active per token ({} and {})\n", parameters(count.total),
             parameters(count.active), count.total, count.active);
  fmt::print("FLOPs       {} per token, {} per step of {:.0f} tokens\n", flop(flops),
             flop(flops * tokens), tokens);
}

void print_layout(const RunConfig& config) {
  fmt::print("grid        {} ranks = pp {} x dp {}; ep {}, expert dp {}; vpp {}\n", config.world(),
             config.parallel.pp, config.parallel.dp, config.parallel.ep,
             config.parallel.dp / config.parallel.ep, config.parallel.vpp);
  fmt::print("batch       {} sequences = {} per micro-batch x dp {} x {} micro-batches\n\n",
             config.train.global_batch, config.train.micro_batch, config.parallel.dp,
             config.microbatches());
}

void print_stages(const RunConfig& config) {
  const RankGrid grid = make_grid(config);
  const Partition partition = make_partition(config);
  const LowerOptions options = lower_options(config);
  constexpr std::string_view kLayers = "layers of each chunk";
  std::size_t width = kLayers.size();
  for (int stage = 0; stage < grid.pp; ++stage)
    width = std::max(width, layers_of(partition, stage).size());
  fmt::print("{:>5}  {:<{}} {:>14} {:>7} {:>5} {:>8} {:>8} {:>9} {:>8} {:>9} {:>8}\n", "stage",
             kLayers, width, "parameters", "warm-up", "live", "params", "grads", "optimizer",
             "saved", "transient", "sum GiB");
  std::int64_t largest = 0;
  for (int stage = 0; stage < grid.pp; ++stage) {
    const ParamTable table = make_params(config, grid, partition, grid.rank_at(stage, 0));
    const MemoryPlan memory =
        rank_memory(table, build_program(options, ProgramKind::kTraining, stage), config);
    fmt::print(
        "{:>5}  {:<{}} {:>14} {:>7} {:>5} {:>8.3f} {:>8.3f} {:>9.3f} {:>8.3f} {:>9.3f} {:>8.3f}\n",
        stage, layers_of(partition, stage), width, rank_params(table),
        warmup_tasks(options.shape, stage), peak_live_chunks(options.shape, stage),
        gib(memory.params), gib(memory.grads), gib(memory.optimizer), gib(memory.saved),
        gib(memory.transient), gib(memory.total()));
    largest = std::max(largest, memory.total());
  }
  fmt::print(
      "\nparameters per rank; warm-up: forward tasks before the first backward; live: chunks "
      "whose\nactivations are held at once, at the peak; GiB per rank with balanced experts; "
      "transient: what\nnodes hand to each other and nobody keeps for a backward pass.\n"
      "E embedding, H head and loss, - a chunk without layers.\n");
  constexpr double kH100 = 79.0, kH200 = 139.0;  // GiB that a process can have
  const double need = gib(largest);
  const char* fits = need <= kH100 ? "fits the 80 GB of an H100"
                     : need <= kH200
                         ? "too much for 80 GB (H100), fits 141 GB (H200)"
                         : "too much for 141 GB (H200): more pp, ep or dp, or a smaller "
                           "micro-batch";
  fmt::print("largest rank: {:.1f} GiB before scratch and libraries; {}\n", need, fits);
}

}  // namespace

RunConfig planned_config(const ConfigArgs& args) {
  RunConfig config = load_config(args.path, args.overrides);
  const bool dp_given =
      std::any_of(args.overrides.begin(), args.overrides.end(),
                  [](const std::string& text) { return text.rfind("parallel.dp=", 0) == 0; });
  const int dp_of_file = dp_given ? 0 : config.parallel.dp;
  if (args.ranks > 0 && !dp_given) config.parallel.dp = 0;  // another size: dp follows from it
  const RunConfig planned = resolve(std::move(config), args.ranks, config_origin(args.path));
  if (args.ranks > 0 && dp_of_file != 0 && dp_of_file != planned.parallel.dp)
    fmt::print(stderr,
               "note: parallel.dp {} of {} replaced by {} for {} ranks; to train on them, set "
               "parallel.dp={}\n",
               dp_of_file, args.path, planned.parallel.dp, args.ranks, planned.parallel.dp);
  return planned;
}

int run_plan(const ConfigArgs& args) {
  const RunConfig config = planned_config(args);
  print_model(config);
  print_layout(config);
  print_stages(config);
  return 0;
}

}  // namespace tandem
