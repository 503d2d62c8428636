// Contracts around the bodies: declared slots, evaluation, 16-bit storage, the modelled delay,
// parameters.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>

#include "harness.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

using test::Harness;
using test::tiny_config;

void alone(const std::function<void(World&)>& body) {
  run_as_threads(1, body);
}

double grad_norm(Harness& h) {
  double sum = 0.0;
  for (std::size_t b = 0; b < h.params().table().buckets.size(); ++b) {
    const View g = h.params().bucket_grads(b);
    for (std::int64_t i = 0; i < g.size(); ++i) sum += std::pow(g.as<float>()[i], 2);
  }
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("a node reaches only the slots it declares") {
  alone([](World& world) {
    Harness h(tiny_config(), world, 1);
    std::vector<std::byte> memory(4096);
    const BoundSlot slots[] = {{SlotKind::kX, 0, Access::kRead, memory.data(), 0},
                               {SlotKind::kH, 0, Access::kWrite, memory.data(), 0},
                               {SlotKind::kPooledLoad, 0, Access::kAccumulate, memory.data(), 0}};
    NodeCtx ctx = h.context(0, true);
    ctx.slots = slots;
    REQUIRE(ctx.in(SlotKind::kX).rows == h.dims().tokens);
    REQUIRE(ctx.out(SlotKind::kH).cols == h.dims().hidden);
    REQUIRE(ctx.in(SlotKind::kPooledLoad, 1).rows == h.dims().experts);
    REQUIRE_FALSE(ctx.starts_afresh(SlotKind::kPooledLoad));
    CHECK_THROWS_AS(ctx.in(SlotKind::kH), Error);         // declared, but only to write
    CHECK_THROWS_AS(ctx.out(SlotKind::kX), Error);        // declared, but only to read
    CHECK_THROWS_AS(ctx.in(SlotKind::kX, 0, 1), Error);   // another layer
    CHECK_THROWS_AS(ctx.in(SlotKind::kPermuted), Error);  // not declared
    CHECK_THROWS_AS(ctx.param(ParamKind::kQkv), Error);   // parameters not declared
    CHECK_THROWS_AS(ctx.grad(ParamKind::kQkv), Error);    // gradients not declared
    CHECK_THROWS_AS(run_node(NodeKind::kCounts, Phase::kBwdInput, ctx), Error);
  });
}

TEST_CASE("evaluation computes the loss and leaves every gradient alone") {
  alone([](World& world) {
    Harness h(tiny_config(), world, 1);
    const double training = h.forward(true);
    h.params().zero_grads(h.device(), h.stream());
    CHECK(h.forward(false) == training);
    CHECK(grad_norm(h) == 0.0);
  });
}

TEST_CASE("16-bit storage computes nearly the same loss and gradient") {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  double loss[3], norm[3];
  alone([&](World& world) {
    for (std::size_t i = 0; i < 3; ++i) {
      RunConfig config = tiny_config();
      config.model.init_std = 0.2;
      config.train.dtype = kTypes[i];
      Harness h(config, world, 1);
      loss[i] = h.forward();
      h.backward();
      norm[i] = grad_norm(h);
    }
  });
  // About ten roundings of 2^-9 (bf16) or 2^-12 (fp16) lie between a parameter and the loss, most
  // of them averaged out.
  for (const std::size_t i : {1U, 2U}) {
    const double rounding = i == 1 ? 10.0 / 512 : 10.0 / 4096;
    CHECK(loss[i] == Approx(loss[0]).epsilon(rounding));
    CHECK(norm[i] == Approx(norm[0]).epsilon(rounding));
    CHECK(loss[i] != loss[0]);
  }
}

TEST_CASE("the modelled delay is spent in dispatch and combine, both ways, not in counts") {
  alone([](World& world) {
    Harness h(tiny_config(), world, 1);
    h.forward();
    h.backward();
    h.set_delay_us(20000);
    const auto took_ms = [&](NodeKind kind, Phase phase) {
      const auto begin = std::chrono::steady_clock::now();
      h.run(kind, phase, 0);
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
          .count();
    };
    CHECK(took_ms(NodeKind::kDispatch, Phase::kFwd) >= 20.0);
    CHECK(took_ms(NodeKind::kCombine, Phase::kFwd) >= 20.0);
    CHECK(took_ms(NodeKind::kDispatch, Phase::kBwdInput) >= 20.0);
    CHECK(took_ms(NodeKind::kCombine, Phase::kBwdInput) >= 20.0);
    CHECK(took_ms(NodeKind::kCounts, Phase::kFwd) < 20.0);
  });
}

TEST_CASE("parameters have the same values on every layout, and zero padding") {
  std::vector<float> whole, halves;
  alone([&](World& world) {
    Harness h(tiny_config(), world, 1);
    const View v = h.params().value(ParamKind::kExpertDown, 0);
    whole.assign(v.as<float>(), v.as<float>() + v.size());
    for (std::size_t b = 0; b < h.params().table().buckets.size(); ++b) {
      const View all = h.params().bucket_values(b);
      for (std::int64_t i = h.params().table().buckets[b].size; i < all.size(); ++i)
        CHECK(all.as<float>()[i] == 0.0F);
    }
    CHECK_THROWS_AS(h.params().value(ParamKind::kMlpDown, 0), Error);  // a MoE layer has none
  });
  std::vector<float> parts[2];
  run_as_threads(2, [&](World& world) {
    Harness h(tiny_config(), world, 1);
    const View v = h.params().value(ParamKind::kExpertDown, 0);
    parts[world.rank()].assign(v.as<float>(), v.as<float>() + v.size());
  });
  for (const auto& part : parts) halves.insert(halves.end(), part.begin(), part.end());
  REQUIRE(whole.size() == halves.size());
  CHECK(std::memcmp(whole.data(), halves.data(), whole.size() * sizeof(float)) == 0);
}

TEST_CASE("the first backward pass stores the gradients of experts, the next adds to them") {
  alone([](World& world) {
    Harness h(tiny_config(), world, 1);
    const ParamBucket& bucket = h.params().table().buckets.back();
    REQUIRE(bucket.group == ParamGroup::kExpert);
    const View all = h.params().bucket_grads(h.params().table().buckets.size() - 1);
    const auto values = [&] {
      return std::vector<float>(all.as<float>(), all.as<float>() + all.size());
    };
    h.params().poison_expert_grads(h.device(), h.stream());
    h.stream().sync();
    const std::vector<float> poison = values();
    const auto size = static_cast<std::size_t>(bucket.size);
    for (std::size_t i = 0; i < poison.size(); ++i) REQUIRE(std::isnan(poison[i]) == (i < size));

    const auto backward = [&] {
      h.params().zero_grads(h.device(), h.stream());
      h.forward();
      h.backward();
      return values();
    };
    const std::vector<float> once = backward(), twice = backward();
    float largest = 0.0F;
    for (const float g : once) {
      REQUIRE(std::isfinite(g));
      largest = std::max(largest, std::abs(g));
    }
    CHECK(largest > 0.0F);
    // The second sum begins at the first one, so that its roundings differ.
    for (std::size_t i = 0; i < once.size(); ++i)
      REQUIRE(twice[i] == Approx(2 * once[i]).margin(1e-5 * largest));
    for (std::size_t i = size; i < once.size(); ++i) CHECK(once[i] == 0.0F);
  });
}

}  // namespace tandem
