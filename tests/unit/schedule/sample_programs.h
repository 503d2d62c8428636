// Programs as the lowering passes make them, over the shapes that the tests sweep.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "tandem/schedule/lower.h"

namespace tandem {

struct Sample {
  int pp = 1, vpp = 1, microbatches = 2;
  std::vector<int> layers{};       // by virtual stage
  std::vector<int> moe_pattern{};  // by layer; empty: all MoE
  bool overlap = true, delay_wgrad = true;
  EventMode events = EventMode::kPerDirection;

  [[nodiscard]] std::string name() const {
    std::string partition, pattern;
    for (const int n : layers) partition += std::to_string(n);
    for (const int m : moe_pattern) pattern += m ? 'M' : 'd';
    return fmt::format("pp{} vpp{} M{} layers {} {} overlap {} delay {}", pp, vpp, microbatches,
                       partition, pattern, overlap, delay_wgrad);
  }
};

inline std::vector<Program> build(const Sample& sample, ProgramKind kind = ProgramKind::kTraining) {
  LowerOptions options;
  options.partition.pp = sample.pp;
  options.partition.vpp = sample.vpp;
  int layer = 0;
  const int last = sample.pp * sample.vpp - 1;
  for (int v = 0; v <= last; ++v) {
    const int end = layer + sample.layers.at(v);
    options.partition.stages.push_back({v, layer, end, v == 0, v == last});
    layer = end;
  }
  options.model.layers = layer;
  options.model.moe_pattern = sample.moe_pattern;
  options.shape = {.pp = sample.pp,
                   .vpp = sample.vpp,
                   .microbatches = sample.microbatches,
                   .group = sample.pp,
                   .overlap = sample.overlap};
  options.delay_wgrad = sample.delay_wgrad;
  options.events = sample.events;
  std::vector<Program> programs;
  for (int stage = 0; stage < sample.pp; ++stage)
    programs.push_back(build_program(options, kind, stage));
  return programs;
}

// One of every kind: pipeline depths, chunks, counts of micro-batches, dense layers (the last one
// too), uneven partitions, chunks without layers. All small enough to mutate exhaustively.
inline std::vector<Sample> small_samples() {
  std::vector<Sample> out;
  for (const bool overlap : {true, false})
    for (const bool delay : {true, false}) {
      const auto add = [&](int pp, int vpp, int m, std::vector<int> layers,
                           std::vector<int> pattern = {}) {
        out.push_back({pp, vpp, m, std::move(layers), std::move(pattern), overlap, delay});
      };
      add(1, 1, 1, {2});
      add(1, 1, 3, {2}, {1, 0});
      add(2, 1, 1, {1, 1});
      add(2, 1, 4, {2, 1}, {0, 1, 0});
      add(2, 2, 2, {1, 1, 1, 1});
      add(2, 2, 4, {2, 0, 1, 1}, {1, 1, 0, 1});
      add(4, 1, 4, {1, 1, 1, 0}, {0, 1, 1});
      add(4, 2, 4, {1, 0, 1, 1, 0, 1, 1, 0});
    }
  return out;
}

}  // namespace tandem
