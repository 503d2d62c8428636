// One rank that runs one training step of a program the test has changed. The engine proves its
// programs before it runs them and would refuse such a one, so the parts are put together here.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "slow_lane.h"
#include "tandem/config/load.h"
#include "tandem/data/batch_source.h"
#include "tandem/runtime/executor.h"
#include "tandem/schedule/lower.h"
#include "tandem/train/batch_loader.h"

namespace tandem {

// Two MoE layers, two micro-batches, overlap: every kind of wait that one stage has.
inline RunConfig paired_step() {
  return resolve(parse_config(R"({
    "model": {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "experts": 4,
              "topk": 2, "moe_ffn": 32, "vocab": 64},
    "train": {"device": "cpu", "micro_batch": 1, "global_batch": 2, "seq_len": 16,
              "poison_memory": true},
    "data": {"kind": "synthetic"}})",
                              "the tests' config", {}),
                 1);
}

inline Program program_of(const RunConfig& config) {
  return build_program(lower_options(config), ProgramKind::kTraining, 0);
}

struct StepOutcome {
  double loss = 0.0, norm = 0.0;  // NaN: the step was refused half-way
  [[nodiscard]] bool operator==(const StepOutcome&) const = default;  // false with a NaN
};

// Runs one step in a world of one rank whose lane `slow` is late wherever it may be.
inline StepOutcome run_step(const RunConfig& config, const Program& program, Lane slow) {
  StepOutcome outcome;
  run_as_threads(1, [&](World& world) {
    SlowLaneDevice device{std::string(name_of(slow))};
    const RankGrid grid = make_grid(config);
    const BatchSources data = open_data(config);
    BatchLoader batches(device, config, config.microbatches(), true);
    Timeline timeline(device);
    std::unique_ptr<Params> params;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Executor> executor;
    RankComms comms = make_rank_comms(world, grid, false);
    Lanes lanes(device, grid.pp);  // last: their work uses everything above
    params = std::make_unique<Params>(device, lanes.stream(Lane::kCompute),
                                      make_params(config, grid, make_partition(config), 0),
                                      config.train.dtype, config.train.seed);
    optimizer = std::make_unique<Optimizer>(device, lanes.stream(Lane::kDp), *params,
                                            config.optimizer, false, comms.optimizer());
    executor = std::make_unique<Executor>(
        RankState{config, make_dims(config), device, lanes, comms, *params, *optimizer, timeline},
        program);

    std::vector<std::int64_t> first;
    for (int m = 0; m < config.microbatches(); ++m) first.push_back(first_sample(config, 0, m, 0));
    const double tokens = static_cast<double>(config.train.global_batch) * config.train.seq_len;
    StepInput input;
    input.batches = batches.load(lanes.stream(Lane::kCompute), *data.train, first);
    input.loss_scale = static_cast<float>(1.0 / tokens);
    input.aux_scale = static_cast<float>(1.0 / config.microbatches());
    input.lr = 1e-3;
    float norm = 0.0F;
    try {
      executor->run(input);
      device.copy(lanes.stream(Lane::kDp), &norm, optimizer->grad_norm().data, sizeof(norm));
      // hazard: the copy of the norm before the host reads it
      lanes.stream(Lane::kDp).sync();
      outcome = {executor->loss_sum(), static_cast<double>(norm)};
    } catch (const Error&) {
      outcome = {std::nan(""), std::nan("")};
    }
  });
  return outcome;
}

inline std::vector<std::size_t> waits_of(const Program& program) {
  std::vector<std::size_t> waits;
  for (std::size_t i = 0; i < program.instrs.size(); ++i)
    if (program.instrs[i].op == Op::kWait) waits.push_back(i);
  return waits;
}

inline Program without(Program program, std::size_t instr) {
  program.instrs.erase(program.instrs.begin() + static_cast<std::ptrdiff_t>(instr));
  return program;
}

}  // namespace tandem
