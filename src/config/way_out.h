// What holds all rules of the layout together, where one of them is broken: advice that mends one
// rule alone leads into the next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tandem/config/config.h"

namespace tandem::config {

struct WayOut {
  int ranks = 0;  // with so many the config holds unchanged; 0: unknown
  std::string
      settings;  // "parallel.dp=1 parallel.ep=1": hold for the ranks of the run; "": unknown
  std::string per_layer;  // the same with model.aux_loss=per_layer, where it is pooled; "": unknown

  [[nodiscard]] std::string start() const;  // "start 4 ranks (mpirun -np 4, or --ranks 4)" or ""
  [[nodiscard]] std::string set() const;    // "set parallel.dp=1 parallel.ep=1" or ""
};

// `first`, or else `second`, or both with ", or " between them.
std::string either(const std::string& first, const std::string& second);

// How many micro-batches a step may have: every rank holds the programs of all stages for a whole
// step, some 2 KB for each layer and each chunk of a micro-batch.
std::int64_t most_microbatches(std::int64_t layers, std::int64_t chunks);

// Whether a config, with dp and microbatch_group as given, holds the rules of the layout for so
// many ranks; 0: the number it names itself.
using LayoutHolds = std::function<bool(const RunConfig& config, int world)>;

// Looks for the layout nearest to that of `asked`: of the same number of stages, or else the next
// smaller one that divides the ranks; with as many expert ranks as can be; with other layers of the
// stages, group or batch only where they must change. `world` as of LayoutHolds.
WayOut find_way_out(const RunConfig& asked, int world, const LayoutHolds& holds);

}  // namespace tandem::config
