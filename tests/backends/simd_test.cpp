// The CPU kernels' own exponential, roundings and shuffles.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ops/cpu/transpose.h"

namespace tandem::cpu {
namespace {

float exp_of_one(float x) {
  float lane[kLanes];
  narrow(lane, exp(splat(x)));
  return lane[0];
}

TEST_CASE("vector exponential is within 2 ulp") {
  double worst = 0;
  for (double at = -87.29; at < 88.72; at += 0.00137) {
    const auto x = static_cast<float>(at);
    const double exact = std::exp(static_cast<double>(x));
    const auto near = static_cast<float>(exact);
    const double ulp =
        static_cast<double>(std::nextafter(near, INFINITY)) - static_cast<double>(near);
    worst = std::max(worst, std::abs(static_cast<double>(exp_of_one(x)) - exact) / ulp);
  }
  CHECK(worst <= 2.0);
}

TEST_CASE("vector exponential at the edges") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(exp_of_one(0) == 1);
  CHECK(exp_of_one(-0.0F) == 1);
  CHECK(exp_of_one(88.722835F) < kInf);
  CHECK(exp_of_one(88.8F) == kInf);
  CHECK(exp_of_one(1e30F) == kInf);
  CHECK(exp_of_one(kInf) == kInf);
  CHECK(exp_of_one(-88) == 0);
  CHECK(exp_of_one(-1e30F) == 0);
  CHECK(exp_of_one(-kInf) == 0);
  CHECK(std::isnan(exp_of_one(NAN)));
}

TEST_CASE("every NaN narrows to a NaN") {
  for (const std::uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0x7fc00000U}) {
    BF16 out[kLanes];
    CHECK(std::isnan(to_float(from_float<BF16>(std::bit_cast<float>(bits)))));
    const IntVec lanes = IntVec{} + bits;
    narrow(out, std::bit_cast<Vec>(lanes));
    CHECK(std::isnan(to_float(out[0])));
  }
}

TEST_CASE("squares of vectors transpose") {
  Vec square[kLanes];
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < kLanes; ++j) square[i][j] = static_cast<float>(i * kLanes + j);
  transpose(square);
  bool right = true;
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < kLanes; ++j) right &= square[i][j] == static_cast<float>(j * kLanes + i);
  CHECK(right);
}

}  // namespace
}  // namespace tandem::cpu
