#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tandem/base/dtype.h"
#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/base/rng.h"

using namespace tandem;
using Catch::Contains;

namespace {

template <class F>
Error error_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  throw;
}

enum class Colour { kRed = 3, kBlue = 5 };

}  // namespace

TEST_CASE("a failed check prints both values, the place and the message") {
  const int rows = 3, wanted = 4;
  const Error error = error_of([&] { TANDEM_CHECK(rows == wanted, "gather {}", "q"); });
  CHECK(error.code() == ExitCode::kInternal);
  CHECK_THAT(error.what(), Contains("3 vs 4") && Contains("rows == wanted") &&
                               Contains("gather q") && Contains("base_test.cpp"));
}

TEST_CASE("checks work for every comparison, enums, strings and bare conditions") {
  CHECK_NOTHROW([] {
    TANDEM_CHECK(1 < 2, "x");
    TANDEM_CHECK(2 <= 2, "x");
    TANDEM_CHECK(1 != 2, "x");
    TANDEM_CHECK(true, "x");
  }());
  CHECK_THAT(error_of([] { TANDEM_CHECK(5 < 2, "x"); }).what(), Contains("5 vs 2"));
  CHECK_THAT(error_of([] { TANDEM_CHECK(Colour::kRed == Colour::kBlue, "x"); }).what(),
             Contains("3 vs 5"));
  CHECK_THAT(error_of([] { TANDEM_CHECK(std::string("a") == "b", "x"); }).what(),
             Contains("a vs b"));
  CHECK_THAT(error_of([] { TANDEM_CHECK(1 + 1 >= 3, "x"); }).what(), Contains("2 vs 3"));
  CHECK_THAT(error_of([] { TANDEM_CHECK(std::string().size(), "bare"); }).what(), Contains("bare"));
}

TEST_CASE("a check evaluates its operands once and its message only on failure") {
  int evaluated = 0, rendered = 0;
  TANDEM_CHECK(++evaluated == 1, "{}", ++rendered);
  CHECK(evaluated == 1);
  CHECK(rendered == 0);
}

TEST_CASE("throw_error carries the exit code and formats") {
  const Error error = error_of([] { throw_error(ExitCode::kMemory, "{} of {} bytes", 1, 2); });
  CHECK(error.code() == ExitCode::kMemory);
  CHECK(std::string(error.what()) == "1 of 2 bytes");
}

TEST_CASE("Philox gives the published values of Random123") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint64_t ones = ~std::uint64_t{0};
  CHECK(philox(ones, ones, ones) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Digits of pi: the words differ, so a swapped counter, stream or seed shows.
  CHECK(philox(0x299f31d0'a4093822, 0x03707344'13198a2e, 0x85a308d3'243f6a88) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal and uniform numbers have the moments of their distribution") {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, uniform = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = philox_normal(7, 11, i), u = philox_uniform(7, 11, i);
    REQUIRE((u >= 0 && u < 1));
    sum += x;
    squares += x * x;
    uniform += u;
  }
  // Five standard errors of each estimate.
  const double root = std::sqrt(double{kCount});
  CHECK(std::abs(sum / kCount) < 5 / root);
  CHECK(std::abs(squares / kCount - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(uniform / kCount - 0.5) < 5 / std::sqrt(12.0) / root);
}

TEST_CASE("random numbers depend on seed, stream and index") {
  std::set<float> values;
  for (std::uint64_t seed : {1, 2})
    for (std::uint64_t stream : {1, 2})
      for (std::uint64_t index : {0, 1, 2, 3, 1 << 20})
        values.insert(philox_normal(seed, stream, index));
  CHECK(values.size() == 20);
  CHECK(philox_normal(1, 2, 3) == philox_normal(1, 2, 3));
  CHECK(stream_id("layers.0.qkv") != stream_id("layers.1.qkv"));
  CHECK(stream_id("") == 0xcbf29ce484222325U);   // FNV-1a offset basis
  CHECK(stream_id("a") == 0xaf63dc4c8601ec8cU);  // its published value
}

TEST_CASE("dtypes have names and sizes") {
  for (const DType t :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8})
    CHECK(dtype_from_name(name_of(t)) == t);
  CHECK(dtype_from_name("bf16") == DType::kBF16);
  CHECK_FALSE(dtype_from_name("float"));
  CHECK(size_of(DType::kBF16) == 2);
  CHECK(size_of(DType::kI64) == 8);
}

TEST_CASE("a slice of a view shares its memory") {
  std::array<float, 12> data{};
  const View view{data.data(), DType::kF32, 4, 3};
  const View part = view.slice(1, 2);
  CHECK(part.as<float>() == data.data() + 3);
  CHECK(part.size() == 6);
  CHECK(part.bytes() == 24);
  CHECK(View{nullptr, DType::kF32, 4, 3}.slice(2, 1).data == nullptr);
}

TEST_CASE("the nearest name is the one most likely meant") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("setps", "steps") == 1);  // two neighbours swapped
  CHECK(nearest_name("stepz", {"seed", "steps", "dtype"}) == "steps");
  CHECK(nearest_name("learning_rate", {"lr", "min_lr"}).empty());
  CHECK(nearest_name("qwen3-30b", {"qwen3-235b-a22b", "qwen3-30b-a3b"}) == "qwen3-30b-a3b");
  CHECK(nearest_name("glo", {"seed", "global_batch"}) == "global_batch");
  CHECK(nearest_name("MODEL", {"train", "model"}) == "model");
  CHECK(nearest_name("x", {}).empty());
}
