#include "tandem/base/rng.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

constexpr std::uint32_t kMul0 = 0xD2511F53U, kMul1 = 0xCD9E8D57U;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
constexpr int kRounds = 10;

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream,
                                    std::uint64_t counter) {
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMul0} * c[0], p1 = std::uint64_t{kMul1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

float philox_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto w = philox(seed, stream, index / 2);
  const double scale = 1.0 / 4294967296.0;
  const double u1 = (w[0] + 0.5) * scale, u2 = (w[1] + 0.5) * scale;
  const double radius = std::sqrt(-2.0 * std::log(u1)), angle = 2.0 * std::numbers::pi * u2;
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

void philox_normals(std::uint64_t seed, std::uint64_t stream, std::int64_t begin,
                    std::int64_t count, double scale, float* out) {
  constexpr double unit = 1.0 / 4294967296.0;
  const std::int64_t end = begin + count;
  for (std::int64_t element = begin - begin % 2; element < end; element += 2) {
    const auto words = philox(seed, stream, static_cast<std::uint64_t>(element) / 2);
    const double radius = std::sqrt(-2.0 * std::log((words[0] + 0.5) * unit));
    const double angle = 2.0 * std::numbers::pi * ((words[1] + 0.5) * unit);
    if (element >= begin) *out++ = static_cast<float>(scale * (radius * std::cos(angle)));
    if (element + 1 < end) *out++ = static_cast<float>(scale * (radius * std::sin(angle)));
  }
}

float philox_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto w = philox(seed, stream, index / 4);
  return static_cast<float>(w[index % 4] >> 8) * (1.0F / 16777216.0F);
}

std::uint64_t stream_id(const char* name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (; *name != '\0'; ++name)
    hash = (hash ^ static_cast<unsigned char>(*name)) * 1099511628211ULL;
  return hash;
}

}  // namespace tandem
