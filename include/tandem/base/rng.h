// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator. A value depends only on
// (seed, stream, index), so initialisation is the same under every parallel layout.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

// Four 32-bit words for block `counter` of stream `stream` under `seed`.
std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

// Standard normal number `index` of the stream (Box-Muller on the words of block index / 2, in
// double, rounded to float once).
float philox_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

// Elements [begin, begin + count) of philox_normal's sequence, each times `scale` in double before
// the one rounding. Twice as fast as one by one: two neighbours share a block and a logarithm.
void philox_normals(std::uint64_t seed, std::uint64_t stream, std::int64_t begin,
                    std::int64_t count, double scale, float* out);

// Uniform in [0, 1) number `index` of the stream, 24 bits.
float philox_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

// 64-bit FNV-1a of a name: the stream id of a named tensor.
std::uint64_t stream_id(const char* name);

}  // namespace tandem
