// Benchmarks: what the parts of a training step reach on this machine, beside what the machine can
// do, measured in the same run. `tandem bench` prints the tables; --json writes the same rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/config/config.h"
#include "tandem/train/trainer.h"

namespace tandem::bench {

enum class Kind {
  kGemm,       // the dense products of the model
  kGrouped,    // the experts' products
  kAttention,  // the attention core
  kLayer,      // every op of a layer's nodes, of embedding and head
  kSlice,      // training steps of the whole config
  kAllToAll,   // rows between the ranks, and what that costs a product beside it
};

// "gemm" | "grouped" | "attention" | "layer" | "slice" | "alltoall". Throws Error(kUsage) that
// lists the names and the nearest.
Kind kind_from_name(std::string_view name);
std::string_view name_of(Kind kind);

// True for those that take all ranks of a world (slice, alltoall); the others run on one.
bool takes_ranks(Kind kind);

// One line of a table. Times of one execution: `ms` the median over the repeats, `min_ms` the
// least.
struct Row {
  std::string group, name, shape;
  double ms = 0, min_ms = 0;
  double flops = 0, bytes = 0;  // of one execution; 0: does not count
  double rate = 0;              // in `unit`
  std::string unit;             // "TFLOP/s" | "GB/s" | ""
  double share = 0;             // time the limits allow / time taken; 0: no limit fits
  // Further columns: name and value. NaN: does not apply, "-" in tables and null in JSON.
  std::vector<std::pair<std::string, double>> more;
};

struct Report {
  std::string bench, device, transport;  // transport: alltoall only
  int ranks = 1, repeats = 0;
  std::vector<Row> limits;  // what the shares refer to
  std::vector<Row> rows;
};

// Runs a benchmark with `repeats` timed executions of everything. Blocking, collective; the report
// is whole on rank 0. `config` is resolved for world.size() where takes_ranks(), else for the size
// it names itself; alltoall reads only model.hidden and train. Of `hooks` it tells on_watched
// and on_own_work, as training does. Throws what training throws.
Report run(World& world, Kind kind, const RunConfig& config, int repeats, Log& log,
           const TrainHooks& hooks = {});

std::string to_table(const Report& report);
// With date (UTC) and the command line; the config is written as it was resolved.
std::string to_json(const Report& report, const std::string& command, const RunConfig& config);

}  // namespace tandem::bench
