// The benchmarks that take all ranks of a world. They tell `hooks` what training does.
#pragma once

#include <vector>

#include "tandem/bench/bench.h"
#include "tandem/device/device.h"

namespace tandem::bench {

// Rank 0: a row per timed step and, last, their medians; others: none. `flops_limit`: FLOP/s one
// rank's device reaches in a large product.
std::vector<Row> slice_rows(World& world, const RunConfig& config, int repeats, double flops_limit,
                            TrainHooks hooks);

struct AllToAllRows {
  std::string transport;  // what carries the rows
  std::vector<Row> rows;
};

// A row per message size; the same on every rank.
AllToAllRows alltoall_rows(World& world, Device& device, const RunConfig& config, int repeats,
                           Log& log, const TrainHooks& hooks);

}  // namespace tandem::bench
