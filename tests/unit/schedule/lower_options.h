// Options of the lowering passes, filled in by hand: no config file, no partitioner.
#pragma once

#include <numeric>
#include <vector>

#include "tandem/schedule/lower.h"

namespace tandem {

// `layers`: by virtual stage. `moe`: by layer, 1 = MoE; empty: all MoE.
inline LowerOptions lower_by_hand(PipelineShape shape, const std::vector<int>& layers,
                                  std::vector<int> moe = {}) {
  LowerOptions options;
  options.shape = shape;
  options.partition.pp = shape.pp;
  options.partition.vpp = shape.vpp;
  int begin = 0;
  const int last = shape.pp * shape.vpp - 1;
  for (int v = 0; v <= last; ++v) {
    const int end = begin + layers.at(static_cast<std::size_t>(v));
    options.partition.stages.push_back({v, begin, end, v == 0, v == last});
    begin = end;
  }
  options.model.layers = begin;
  options.model.moe_pattern = std::move(moe);
  return options;
}

inline LowerOptions lower_evenly(PipelineShape shape, int layers_per_chunk) {
  return lower_by_hand(
      shape, std::vector<int>(static_cast<std::size_t>(shape.pp * shape.vpp), layers_per_chunk));
}

inline std::vector<Program> build_all(const LowerOptions& options,
                                      ProgramKind kind = ProgramKind::kTraining) {
  std::vector<Program> programs;
  for (int stage = 0; stage < options.shape.pp; ++stage)
    programs.push_back(build_program(options, kind, stage));
  return programs;
}

}  // namespace tandem
