#include "permutation.h"

#include <algorithm>
#include <bit>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr std::uint64_t kRounds = 6;

}  // namespace

std::int64_t permuted(std::int64_t index, std::int64_t size, std::uint64_t seed,
                      std::uint64_t stream) {
  TANDEM_CHECK(index >= 0, "permutation");
  TANDEM_CHECK(index < size, "permutation");
  const int bits = std::bit_width(static_cast<std::uint64_t>(size - 1));
  const int half_bits = std::max(1, (bits + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;

  std::uint64_t value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = philox(seed, stream, round << 32 | right)[0];
      left ^= mixed & mask;
      std::swap(left, right);
    }
    value = left << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

}  // namespace tandem
