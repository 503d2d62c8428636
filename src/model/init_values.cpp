#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/model/params.h"

namespace tandem {
namespace {

// Standard normal numbers 2 * block and 2 * block + 1 of a stream: those of philox_normal(), but
// the two share the block and the logarithm, which halves the time of filling a tensor.
std::pair<double, double> normal_pair(std::uint64_t seed, std::uint64_t stream,
                                      std::uint64_t block) {
  const auto words = philox(seed, stream, block);
  constexpr double scale = 1.0 / 4294967296.0;
  const double radius = std::sqrt(-2.0 * std::log((words[0] + 0.5) * scale));
  const double angle = 2.0 * std::numbers::pi * ((words[1] + 0.5) * scale);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void init_values(const Param& param, std::uint64_t seed, std::int64_t begin, std::int64_t count,
                 float* out) {
  TANDEM_CHECK(begin >= 0, "{}: first element", param.name);
  TANDEM_CHECK(count >= 0, "{}: number of elements", param.name);
  TANDEM_CHECK(begin + count <= param.global_size, "{}: past the tensor's end", param.name);
  if (param.init_std == 0.0) {
    std::fill_n(out, count, param.fill);
    return;
  }
  const std::uint64_t stream = stream_id(param.name.c_str());
  const std::int64_t end = begin + count;
  for (std::int64_t element = begin - begin % 2; element < end; element += 2) {
    const auto [even, odd] = normal_pair(seed, stream, static_cast<std::uint64_t>(element) / 2);
    if (element >= begin) *out++ = static_cast<float>(param.init_std * even);
    if (element + 1 < end) *out++ = static_cast<float>(param.init_std * odd);
  }
}

}  // namespace tandem
