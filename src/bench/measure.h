// Timing of enqueued work beside the machine's limits.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/bench/bench.h"
#include "tandem/device/device.h"
#include "tandem/ops/launch.h"

namespace tandem::bench {

// Work to time: `run` enqueues it once and returns.
struct Candidate {
  std::string group, name, shape;
  double flops = 0, bytes = 0;
  std::function<void(Stream&)> run;
};

// "4096 x 5120 x 2048", the inner extent of a product last; "16384 B" where
// there are no columns.
std::string shape_text(const ops::OpCost& cost);

template <class Op>
Candidate candidate(std::string group, std::string name, const Op& op) {
  const ops::OpCost cost = ops::cost(op);
  return {std::move(group), std::move(name), shape_text(cost),
          cost.flops,       cost.bytes,      [op](Stream& stream) { launch(stream, op); }};
}

// Executions of a round that are not timed come first: clocks and caches settle.
inline constexpr int kWarmUpRounds = 3;

struct Measured {
  std::vector<Row> limits, rows;  // rows: one a candidate, in order
};

// A round is: a copy larger than the caches, a large square product of `dtype`, then every
// candidate in order, so that each finds the caches as those before it left them and the host is
// ahead of the device. `repeats` timed rounds. Blocking.
Measured measure(Device& device, Stream& stream, DType dtype, int repeats,
                 const std::vector<Candidate>& candidates);

// The middle value; 0 of none.
double median(std::vector<double> values);

// Fills rate, unit and share of a row whose time, flops and bytes are set, against measured limits
// (flops and bytes per second).
void set_rate(Row& row, double flops_limit, double bytes_limit);

// A product for a limit: [n, n] x [n, n]; its rows have names like "product 8192^3 bf16".
std::int64_t limit_side(const Device& device);

}  // namespace tandem::bench
