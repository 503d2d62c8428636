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

// All of fp32 in steps that meet every exponent, ties and their neighbours.
TEST_CASE("fp16 by integers is fp16 by the processor") {
  bool same = true;
  std::uint32_t first = 0;
  const auto check = [&](std::uint32_t bits) {
    const Vec v = splat(std::bit_cast<float>(bits));
    F16 lanes[kLanes];
    narrow(lanes, v);
    const HalfVec other = portable::narrow(v);
    if (same && v[0] == v[0] && lanes[0].bits != other[0]) {
      same = false;
      first = bits;
    }
  };
  for (std::uint64_t bits = 0; bits <= 0xffffffffU; bits += 0xfff)
    for (const std::uint32_t near : {0U, 1U, 0xffffffffU})
      check(static_cast<std::uint32_t>(bits) + near);
  for (std::uint32_t half = 0; half < 0x8000; ++half)  // the ties between normal numbers
    for (const std::uint32_t near : {0U, 1U, 0xffffffffU})
      check((half << 13) + (112U << 23) + 0x1000 + near);
  CAPTURE(first);
  CHECK(same);

  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    HalfVec half{};
    half += static_cast<std::uint16_t>(bits);
    F16 lanes[kLanes];
    std::memcpy(lanes, &half, sizeof half);
    const float a = widen(lanes)[0], b = portable::widen(half)[0];
    same &= a != a ? b != b : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }
  CHECK(same);
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
