// numpy.random.RandomState(seed).shuffle of a one-dimensional array, bit for bit: Mersenne Twister
// words, Fisher-Yates from the back, indices bounded by masking and rejecting.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace tandem {

class NumpyShuffle {
 public:
  explicit NumpyShuffle(std::uint32_t seed) : engine_(seed) {}

  // Continues the one random sequence of this object: the order of calls matters.
  template <class T>
  void operator()(std::span<T> items) {
    for (std::uint64_t i = items.size(); i-- > 1;) std::swap(items[i], items[bounded(i)]);
  }

 private:
  // Uniform in [0, max], max > 0.
  std::uint64_t bounded(std::uint64_t max) {
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
    for (;;) {
      std::uint64_t word = engine_();
      if (max > 0xFFFFFFFFU) word = word << 32 | engine_();
      if ((word & mask) <= max) return word & mask;
    }
  }

  std::mt19937 engine_;
};

}  // namespace tandem
