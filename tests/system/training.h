// Trains a model of a few thousand parameters, ranks as threads, and keeps what the tests compare.
#pragma once

#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../unit/base/temp_folder.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/comm/world.h"
#include "tandem/config/load.h"
#include "tandem/model/params.h"
#include "tandem/train/trainer.h"

namespace tandem {

using Overrides = std::vector<std::string>;

// Four MoE layers; eight micro-batches on one rank. The warm-up is short and the learning rate
// high, so that 20 steps move the loss well beyond any tolerance.
inline constexpr const char* kTiny = R"({
  "model": {"layers": 4, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "dense_ffn": 64,
            "experts": 4, "topk": 2, "moe_ffn": 32, "vocab": 64},
  "train": {"device": "cpu", "steps": 20, "micro_batch": 1, "global_batch": 8, "seq_len": 16,
            "cpu_threads": 1, "watchdog_s": 60},
  "data": {"kind": "synthetic"},
  "optimizer": {"lr": 0.003, "min_lr": 0.0003, "warmup_steps": 2}
})";

inline Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline RunConfig tiny(int ranks, const Overrides& overrides) {
  return resolve(parse_config(kTiny, "the tests' config", overrides), ranks);
}

struct Training {
  std::vector<StepReport> steps;
  TrainResult result;

  [[nodiscard]] std::vector<double> losses() const {
    std::vector<double> values;
    for (const StepReport& step : steps) values.push_back(step.loss);
    return values;
  }
};

inline Training train(int ranks, const Overrides& overrides, const SaveHook& on_save = {},
                      const std::function<void(const StepReport&)>& on_step = {}) {
  const RunConfig config = tiny(ranks, overrides);
  Training training;
  run_as_threads(ranks, [&](World& world) {
    Log log(world.rank(), /*quiet=*/true);
    TrainHooks hooks;
    hooks.on_step = [&](const StepReport& report) {
      training.steps.push_back(report);
      if (on_step) on_step(report);
    };
    hooks.on_save = on_save;
    const TrainResult result = train_rank(world, config, log, hooks);
    if (world.rank() == 0) training.result = result;
  });
  return training;
}

// Master weights, m and v of the whole model, by tensor: what a checkpoint holds, whatever layout
// wrote it.
using ModelState = std::map<std::string, std::vector<float>>;

inline ModelState read_state(const std::string& checkpoint, const Overrides& model) {
  const RunConfig config =
      tiny(1, model + Overrides{"parallel.pp=1", "parallel.vpp=1", "parallel.ep=1"});
  ModelState state;
  std::vector<StatePiece> pieces;
  for (const Param& param :
       make_params(config, make_grid(config), make_partition(config), 0).params) {
    const auto size = static_cast<std::size_t>(param.global_size);
    const auto [entry, added] = state.try_emplace(param.name, 3 * size);
    if (!added) continue;  // the second copy of a tied embedding
    const std::span<float> all(entry->second);
    pieces.push_back({param.name, param.global_size, 0, all.first(size), all.subspan(size, size),
                      all.last(size)});
  }
  (void)load_checkpoint(checkpoint, pieces);
  return state;
}

inline std::string step_folder(const std::string& dir, int step) {
  return dir + fmt::format("/step-{:08}", step);
}

}  // namespace tandem
