// The benchmarks that run on one rank. Each makes its data, measures, and returns limits and rows.
#pragma once

#include "measure.h"
#include "tandem/config/config.h"

namespace tandem::bench {

Measured bench_gemm(Device& device, Stream& stream, const RunConfig& config, int repeats);
Measured bench_grouped(Device& device, Stream& stream, const RunConfig& config, int repeats);
Measured bench_attention(Device& device, Stream& stream, const RunConfig& config, int repeats);
Measured bench_layer(Device& device, Stream& stream, const RunConfig& config, int repeats);

// What the name of a weight gradient ends in: a step's first micro-batch stores it, the others add.
constexpr const char* storing_or_adding(bool adds) {
  return adds ? ", adding" : ", storing";
}

// Rows every local expert receives for `total` rows, in expert order: equal as far as they divide;
// or random, the busiest with a few times the load of the idlest; `empty`: the last expert has
// none.
enum class Spread { kBalanced, kRandom, kEmptyExpert };
std::vector<std::int32_t> expert_counts(Spread spread, std::int64_t experts, std::int64_t total);
std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& counts);  // [experts + 1]

}  // namespace tandem::bench
