// Layers -> virtual stages -> chunks. Virtual stage v = chunk * pp + stage holds the consecutive
// layers [begin, end); it may hold none. The first virtual stage also holds the embedding, the
// last one the final norm, the head and the loss.
#pragma once

#include <vector>

#include "tandem/config/config.h"

namespace tandem {

struct ChunkPlan {
  int virtual_stage = 0;
  int layer_begin = 0, layer_end = 0;   // global layer numbers
  bool has_embedding = false, has_head = false;
  [[nodiscard]] int layers() const { return layer_end - layer_begin; }
};

struct Partition {
  int pp = 1, vpp = 1;
  std::vector<ChunkPlan> stages;        // pp * vpp entries, by virtual stage

  [[nodiscard]] const ChunkPlan& at(int pp_index, int chunk) const {
    return stages[static_cast<std::size_t>(chunk * pp + pp_index)];
  }
};

// Even, explicit (parallel.partition) or spread (surplus layers go one each to the middle virtual
// stages first, so that embedding and head stages stay light). The config is resolved.
Partition make_partition(const RunConfig& config);

}  // namespace tandem
