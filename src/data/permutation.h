// A keyed permutation of [0, size) that needs no memory: a Feistel network over the smallest even
// number of bits that holds `size`, repeated until the value falls inside (cycle walking, fewer
// than four tries on average). Equal (seed, stream, size) give the same permutation everywhere.
#pragma once

#include <cstdint>

namespace tandem {

// Where the permutation sends `index`; 0 <= index < size. Any thread.
std::int64_t permuted(std::int64_t index, std::int64_t size, std::uint64_t seed,
                      std::uint64_t stream);

}  // namespace tandem
