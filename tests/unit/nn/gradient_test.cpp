// Gradients against central differences of the forward pass, and expert parallelism against none.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>

#include "harness.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

using test::Harness;
using test::tiny_config;

std::span<float> values(Harness& h, const Param& p) {
  return {h.params().value(p.kind, p.layer).as<float>(), static_cast<std::size_t>(p.size())};
}
std::span<const float> grads(Harness& h, const Param& p) {
  return {h.params().grad(p.kind, p.layer).as<float>(), static_cast<std::size_t>(p.size())};
}

// Runs on one rank, in a world of its own.
void alone(const std::function<void(World&)>& body) {
  run_as_threads(1, body);
}

struct Check {
  std::string name;
  double analytic = 0, numeric = 0, tolerance = 0, norm = 0;
  int moved = 0;  // evaluations in which the router chose otherwise
};

// Derivative along a direction of random signs with a five-point stencil: its truncation error is
// O(h^4), and rounding of the loss is divided by h.
Check along_signs(Harness& h, const Param& p, std::uint64_t draw) {
  const std::span<float> w = values(h, p);
  const std::span<const float> g = grads(h, p);
  const std::vector<float> saved(w.begin(), w.end());
  const std::vector<std::int32_t> chosen = h.choices();
  std::vector<double> sign(w.size());
  Check c{.name = p.name};
  for (std::size_t i = 0; i < w.size(); ++i) {
    sign[i] = philox_uniform(99 + draw, stream_id(p.name.c_str()), i) < 0.5F ? -1.0 : 1.0;
    c.analytic += sign[i] * static_cast<double>(g[i]);
    c.norm += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  c.norm = std::sqrt(c.norm);

  // The direction's length stays the same for every tensor; a power of two is added without
  // rounding more often.
  const double step = std::exp2(std::round(std::log2(0.04 / std::sqrt(w.size()))));
  double loss_size = 0.0;
  const auto at = [&](int k) {
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<float>(static_cast<double>(saved[i]) + k * step * sign[i]);
    const double loss = h.forward(false);  // evaluation leaves gradients alone
    c.moved += h.choices() == chosen ? 0 : 1;
    loss_size = std::max(loss_size, std::abs(loss));
    return loss;
  };
  c.numeric = (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step);
  std::copy(saved.begin(), saved.end(), w.begin());
  // Each loss carries a few roundings of fp32; the stencil weighs them by at most 1.5 / step.
  const double rounding = 4.0 * std::numeric_limits<float>::epsilon() * loss_size * 1.5 / step;
  c.tolerance = rounding + 2e-3 * c.norm;
  return c;
}

void check_gradients(const RunConfig& config) {
  std::vector<Check> checks;
  alone([&](World& world) {
    Harness h(config, world, 1);
    h.forward();
    h.backward();
    for (const Param& p : h.params().table().params) {
      int usable = 0;
      for (std::uint64_t draw = 0; draw < 12 && usable < 2; ++draw) {
        h.forward(false);  // restores the routing to compare with
        const Check c = along_signs(h, p, draw);
        if (c.moved > 0) continue;
        ++usable;
        checks.push_back(c);
      }
      if (usable == 0) checks.push_back({.name = p.name + ": no direction kept the routing"});
    }
  });
  for (const Check& c : checks) {
    INFO(c.name << " norm " << c.norm << " tolerance " << c.tolerance);
    CHECK(std::abs(c.analytic - c.numeric) <= c.tolerance);
    CHECK(c.norm > 0.0);
  }
}

}  // namespace

TEST_CASE("gradients of a MoE layer with both router losses") {
  RunConfig config = tiny_config();
  SECTION("renormalised weights") {}
  SECTION("plain weights") {
    config.model.norm_topk_prob = false;
  }
  SECTION("no router losses") {
    config.model.aux_loss_coef = config.model.z_loss_coef = 0.0;
  }
  SECTION("QK norm per head") {
    config.model.qk_norm = QkNorm::kPerHead;
  }
  SECTION("QK norm over the full width") {
    config.model.qk_norm = QkNorm::kFull;
  }
  check_gradients(config);
}

TEST_CASE("gradients of dense layers") {
  RunConfig config = tiny_config();
  config.model.experts = 0;
  config.model.moe_pattern = {0};
  check_gradients(config);
}

TEST_CASE("gradients of mixed layers with the pooled balance loss") {
  RunConfig config = tiny_config();
  config.model.layers = 3;
  config.model.moe_pattern = {1, 0, 1};
  config.model.aux_loss = AuxLossKind::kPooled;
  check_gradients(config);
}

TEST_CASE("gradients where some expert gets no token") {
  RunConfig config = tiny_config();
  config.model.topk = 1;
  config.model.norm_topk_prob = false;
  config.train.micro_batch = 1;
  config.train.seq_len = 3;  // three tokens, four experts
  bool starved = false;
  alone([&](World& world) {
    Harness h(config, world, 1);
    h.forward();
    for (const std::int64_t rows : h.routing(0).recv_counts) starved = starved || rows == 0;
  });
  REQUIRE(starved);
  check_gradients(config);
}

TEST_CASE("gradients with a single expert") {
  RunConfig config = tiny_config();
  config.model.experts = config.model.topk = 1;
  config.model.norm_topk_prob = false;
  check_gradients(config);  // its probability is 1; the router learns from the z loss alone
}

namespace {

// Gradients by name after one forward and backward pass, whole tensors.
struct Result {
  double loss = 0;
  std::map<std::string, std::vector<float>> grads;
};

void add(Result& to, const Param& p, std::span<const float> grad) {
  std::vector<float>& whole = to.grads[p.name];
  whole.resize(static_cast<std::size_t>(p.global_size));
  for (std::size_t i = 0; i < grad.size(); ++i)
    whole[static_cast<std::size_t>(p.global_begin) + i] += grad[i];
}

Result run_group(const RunConfig& config, int ranks, int first_batch) {
  std::vector<std::map<std::string, std::vector<float>>> by_rank(static_cast<std::size_t>(ranks));
  std::vector<double> losses(by_rank.size());
  std::vector<ParamTable> tables(by_rank.size());
  run_as_threads(ranks, [&](World& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    Harness h(config, world, first_batch + world.rank());
    losses[r] = h.forward();
    h.backward();
    tables[r] = h.params().table();
    for (const Param& p : tables[r].params)
      by_rank[r][p.name].assign(grads(h, p).begin(), grads(h, p).end());
  });
  Result result;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    result.loss += losses[r];
    for (const Param& p : tables[r].params) add(result, p, by_rank[r][p.name]);
  }
  return result;
}

void expert_parallel_equals_alone(const RunConfig& config) {
  const Result pair = run_group(config, 2, 1);
  Result sum = run_group(config, 1, 1);
  const Result second = run_group(config, 1, 2);
  CHECK(pair.loss == Approx(sum.loss + second.loss).epsilon(1e-6));
  for (auto& [name, grad] : sum.grads) {
    double diff = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const double want = static_cast<double>(grad[i]) + second.grads.at(name)[i];
      diff += std::pow(want - pair.grads.at(name)[i], 2);
      norm += want * want;
    }
    INFO(name);
    // Sums of at most 24 rows in another order.
    CHECK(std::sqrt(diff) <= 24 * std::numeric_limits<float>::epsilon() * std::sqrt(norm));
  }
}

}  // namespace

TEST_CASE("two expert-parallel ranks compute what each computes alone") {
  RunConfig config = tiny_config();
  SECTION("two local experts") {}
  SECTION("one local expert") {
    config.model.experts = 2;
    config.model.topk = 1;
  }
  SECTION("an expert without tokens") {
    config.model.topk = 1;
    config.train.micro_batch = 1;
    config.train.seq_len = 2;
  }
  expert_parallel_equals_alone(config);
}

}  // namespace tandem
