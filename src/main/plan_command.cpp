#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "amounts.h"
#include "commands.h"
#include "gpu_fit.h"
#include "json_report.h"
#include "output_file.h"
#include "tandem/base/units.h"
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

// A stage as the table and the report show it.
struct StagePlan {
  int stage = 0;
  std::int64_t params = 0;
  int warmup = 0, live = 0;
  MemoryPlan memory;  // of one rank
};

struct Plan {
  const RunConfig& config;
  Partition partition;
  std::vector<StagePlan> stages;
  [[nodiscard]] std::int64_t largest() const {
    std::int64_t most = 0;
    for (const StagePlan& stage : stages) most = std::max(most, stage.memory.total());
    return most;
  }
};

Plan make_plan(const RunConfig& config) {
  Plan plan{config, make_partition(config), {}};
  const RankGrid grid = make_grid(config);
  const LowerOptions options = lower_options(config);
  for (int stage = 0; stage < grid.pp; ++stage) {
    const ParamTable table = make_params(config, grid, plan.partition, grid.rank_at(stage, 0));
    plan.stages.push_back(
        {stage, rank_params(table), warmup_tasks(options.shape, stage),
         peak_live_chunks(options.shape, stage),
         rank_memory(table, build_program(options, ProgramKind::kTraining, stage), config)});
  }
  return plan;
}

double tokens_per_step(const RunConfig& config) {
  return static_cast<double>(config.train.global_batch) * config.train.seq_len;
}

void print_model(const RunConfig& config) {
  const ParamCount count = count_params(config.model);
  const double flops = flops_per_token(config);
  const double tokens = tokens_per_step(config);
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

void print_stages(const Plan& plan) {
  constexpr std::string_view kLayers = "layers of each chunk";
  std::size_t width = kLayers.size();
  for (const StagePlan& stage : plan.stages)
    width = std::max(width, layers_of(plan.partition, stage.stage).size());
  fmt::print("{:>5}  {:<{}} {:>14} {:>7} {:>5} {:>8} {:>8} {:>9} {:>8} {:>9} {:>8}\n", "stage",
             kLayers, width, "parameters", "warm-up", "live", "params", "grads", "optimizer",
             "saved", "transient", "sum GiB");
  for (const StagePlan& stage : plan.stages) {
    const MemoryPlan& memory = stage.memory;
    fmt::print(
        "{:>5}  {:<{}} {:>14} {:>7} {:>5} {:>8.3f} {:>8.3f} {:>9.3f} {:>8.3f} {:>9.3f} {:>8.3f}\n",
        stage.stage, layers_of(plan.partition, stage.stage), width, stage.params, stage.warmup,
        stage.live, gib(memory.params), gib(memory.grads), gib(memory.optimizer), gib(memory.saved),
        gib(memory.transient), gib(memory.total()));
  }
  fmt::print(
      "\nparameters per rank; warm-up: forward tasks before the first backward; live: chunks "
      "whose\nactivations are held at once, at the peak; GiB per rank with balanced experts; "
      "transient: what\nnodes hand to each other and nobody keeps for a backward pass.\n"
      "E embedding, H head and loss, - a chunk without layers.\n");
}

void write_stage(JsonWriter& json, const Plan& plan, const StagePlan& stage) {
  json.begin_object().key("stage").value(stage.stage).key("chunks").begin_array();
  for (int chunk = 0; chunk < plan.partition.vpp; ++chunk) {
    const ChunkPlan& held = plan.partition.at(stage.stage, chunk);
    json.begin_object().key("layer_begin").value(held.layer_begin);
    json.key("layer_end").value(held.layer_end).key("embedding").value(held.has_embedding);
    json.key("head").value(held.has_head).end_object();
  }
  const MemoryPlan& memory = stage.memory;
  json.end_array().key("parameters").value(stage.params).key("warmup_tasks").value(stage.warmup);
  json.key("live_chunks").value(stage.live).key("params_bytes").value(memory.params);
  json.key("grads_bytes").value(memory.grads).key("optimizer_bytes").value(memory.optimizer);
  json.key("saved_bytes").value(memory.saved).key("transient_bytes").value(memory.transient);
  json.key("total_bytes").value(memory.total()).end_object();
}

void write_report(const Plan& plan, const std::string& file) {
  const ModelConfig& model = plan.config.model;
  const ParamCount count = count_params(model);
  const double flops = flops_per_token(plan.config), tokens = tokens_per_step(plan.config);
  JsonWriter json = begin_report("plan", plan.config);
  json.key("model").begin_object().key("layers").value(model.layers);
  json.key("hidden").value(model.hidden).key("heads").value(model.heads);
  json.key("kv_heads").value(model.kv_heads).key("experts").value(model.experts);
  json.key("topk").value(model.topk).key("vocab").value(model.vocab);
  json.key("parameters").value(count.total).key("active_parameters").value(count.active);
  json.end_object().key("flop_per_token").value(flops);
  json.key("flop_per_step").value(flops * tokens).key("tokens_per_step").value(tokens);
  json.key("stages").begin_array();
  for (const StagePlan& stage : plan.stages) write_stage(json, plan, stage);
  json.end_array().key("largest_rank");
  write_fit(json, plan.largest());
  end_report(json, file);
}

}  // namespace

int run_plan(const ReportArgs& args) {
  require_other_file("--json", args.json, args.config.path);
  const RunConfig config = planned_config(args.config);
  const Plan plan = make_plan(config);
  if (!args.json.empty()) write_report(plan, args.json);
  if (instead_of_tables(args.json)) return 0;
  print_model(config);
  print_layout(config);
  print_stages(plan);
  print_fit(plan.largest());
  return 0;
}

}  // namespace tandem
