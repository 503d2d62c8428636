#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "commands.h"
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

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGib;
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
  fmt::print("parameters  {} total, {} active per token\n", count.total, count.active);
  fmt::print("FLOPs       {:.3f} GFLOP per token, {:.3f} TFLOP per step of {:.0f} tokens\n",
             flops / 1e9, flops * tokens / 1e12, tokens);
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
  fmt::print("{:>5}  {:<24} {:>14} {:>7} {:>5} {:>8} {:>8} {:>9} {:>8} {:>9} {:>8}\n", "stage",
             "layers of each chunk", "parameters", "warm-up", "live", "params", "grads",
             "optimizer", "saved", "transient", "sum GiB");
  std::int64_t largest = 0;
  for (int stage = 0; stage < grid.pp; ++stage) {
    const ParamTable table = make_params(config, grid, partition, grid.rank_at(stage, 0));
    const MemoryPlan memory =
        rank_memory(table, build_program(options, ProgramKind::kTraining, stage), config);
    fmt::print(
        "{:>5}  {:<24} {:>14} {:>7} {:>5} {:>8.3f} {:>8.3f} {:>9.3f} {:>8.3f} {:>9.3f} {:>8.3f}\n",
        stage, layers_of(partition, stage), rank_params(table), warmup_tasks(options.shape, stage),
        peak_live_chunks(options.shape, stage), gib(memory.params), gib(memory.grads),
        gib(memory.optimizer), gib(memory.saved), gib(memory.transient), gib(memory.total()));
    largest = std::max(largest, memory.total());
  }
  fmt::print(
      "\nparameters per rank; warm-up: forward tasks before the first backward; live: chunks "
      "whose\n"
      "activations are held at once, at the peak; GiB per rank with balanced experts.\n"
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
    fmt::print(stderr, "note: parallel.dp {} of {} replaced by {} for {} ranks\n", dp_of_file,
               args.path, planned.parallel.dp, args.ranks);
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
