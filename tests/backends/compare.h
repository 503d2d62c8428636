// Bounds: |got - reference| <= storage |reference| + eps factor magnitude, where storage is what
// rounding the result to its dtype may cost, magnitude is the sum of the absolute values of the
// terms that were added, and factor grows with the root of the number of roundings.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "backend.h"

namespace tandem::test {

inline constexpr double kEps = 1.0 / (1 << 23);

// A reference result with the magnitude of the terms behind each element.
struct Expected {
  Values v, magnitude;
  explicit Expected(std::size_t n = 0) : v(n), magnitude(n) {}
  void add(std::size_t i, double term) {
    v[i] += term;
    magnitude[i] += std::abs(term);
  }
  void add(std::size_t i, double term, double term_magnitude) {
    v[i] += term;
    magnitude[i] += term_magnitude;
  }
};

inline double root(std::int64_t n) {
  return std::sqrt(static_cast<double>(n));
}

// The largest error as a multiple of its bound; at most 1 is right. NaN counts as infinite.
inline double error_over_bound(const Tensor& got, const Expected& expected, double factor) {
  REQUIRE(got.v.size() == expected.v.size());
  const bool f16 = got.dtype == DType::kF16;
  const double storage = got.dtype == DType::kBF16 ? 1.0 / 256 : f16 ? 1.0 / 2048 : kEps / 2;
  const double least = f16 ? std::ldexp(1.0, -25) : 1e-37;  // half of the smallest step
  double worst = 0;
  for (std::size_t i = 0; i < got.v.size(); ++i) {
    const double bound =
        storage * std::abs(expected.v[i]) + kEps * factor * expected.magnitude[i] + least;
    const double error = std::abs(got.v[i] - expected.v[i]);
    worst = error <= bound * worst ? worst : (error == error ? error / bound : 1e300);
  }
  return worst;
}

#define CHECK_CLOSE(got, expected, factor) \
  CHECK(::tandem::test::error_over_bound(got, expected, factor) <= 1.0)

// Where the values are already all there is to compare against: magnitude |v|.
inline Expected by_size(Values v) {
  Expected e(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) e.add(i, v[i]);
  return e;
}

inline double weighted_sum(const Values& values, const Values& weights) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += values[i] * weights[i];
  return total;
}

// Proves a reference gradient: central differences of the scalar loss in every element of x.
inline void check_gradient(Values x, const std::function<double(const Values&)>& loss,
                           const Values& gradient) {
  constexpr double kStep = 1e-5;
  REQUIRE(x.size() == gradient.size());
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double center = x[i];
    x[i] = center + kStep;
    const double up = loss(x);
    x[i] = center - kStep;
    const double down = loss(x);
    x[i] = center;
    worst = std::max(worst, std::abs((up - down) / (2 * kStep) - gradient[i]));
    largest = std::max(largest, std::abs(gradient[i]));
  }
  // The step's own error is near kStep^2 times a third derivative, rounding near 1e-16 / kStep.
  CHECK(worst <= 1e-7 * largest);
}

}  // namespace tandem::test
