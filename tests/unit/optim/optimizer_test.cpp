// The sharded update against AdamW in double over whole tensors, on many layouts.
#include "tandem/optim/optimizer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "tandem/base/rng.h"
#include "tandem/comm/world.h"

namespace tandem {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;  // by name, whole

struct Layout {
  int pp = 1, dp = 1, ep = 1;
};

RunConfig make_config(const Layout& layout, bool tied) {
  RunConfig c;
  c.model.layers = 2;
  c.model.hidden = 8;
  c.model.heads = c.model.kv_heads = 1;
  c.model.head_dim = 8;
  c.model.dense_ffn = 12;
  c.model.experts = 6;
  c.model.topk = 2;
  c.model.moe_ffn = 5;
  c.model.vocab = 7;
  c.model.moe_pattern = {1, 0};
  c.model.tied_embeddings = tied;
  c.model.init_std = 0.3;
  c.parallel.pp = layout.pp;
  c.parallel.dp = layout.dp;
  c.parallel.ep = layout.ep;
  c.optimizer.clip = 0.0;
  return c;
}

// A gradient that is known for every layout: element i of a tensor at a step, split in shares.
float whole_grad(const std::string& name, bool head_copy, std::int64_t step, std::int64_t element) {
  const std::string key = name + (head_copy ? "/head" : "");
  return philox_normal(static_cast<std::uint64_t>(step), stream_id(key.c_str()),
                       static_cast<std::uint64_t>(element));
}

// Everything a rank needs to optimise: device, communicators of the grid, parameters.
struct Rank {
  Rank(const RunConfig& c, World& world)
      : config(c),
        grid(make_grid(c)),
        device(make_cpu_device({})),
        stream(device->make_stream("dp", 0)) {
    const int r = world.rank();
    const std::vector<int> stages = grid.pp_group(r);
    const bool end = r == stages.front() || r == stages.back();
    dense = world.make_comm(grid.dp_group(r), "dp");
    expert = world.make_comm(grid.edp_group(r), "edp");
    pipeline = world.make_comm(stages, "pp");
    experts = world.make_comm(grid.ep_group(r), "ep");
    const bool two = stages.size() > 1 && end;
    tied = world.make_comm(
        two ? std::vector<int>{stages.front(), stages.back()} : std::vector<int>{r}, "tied");
    params = std::make_unique<Params>(*device, *stream, make_params(c, grid, make_partition(c), r),
                                      DType::kF32, 3);
    const bool two_copies = c.model.tied_embeddings && two;
    optimizer = std::make_unique<Optimizer>(
        *device, *stream, *params, c.optimizer, c.model.tied_embeddings,
        OptimizerComms{dense.get(), expert.get(), pipeline.get(), experts.get(),
                       two_copies ? tied.get() : nullptr});
  }

  // Member i of n sharing ranks contributes a share of 2 (i + 1) / (n (n + 1)); they sum to 1.
  void set_grads(int rank, std::int64_t step, float factor) {
    const RankGrid::Place place = grid.place(rank);
    for (const Param& p : params->table().params) {
      const bool is_expert = p.group == ParamGroup::kExpert;
      const int n = is_expert ? grid.edp() : grid.dp, i = is_expert ? place.edp : place.dp;
      const float share = 2.0F * static_cast<float>(i + 1) / static_cast<float>(n * (n + 1));
      const bool copy = config.model.tied_embeddings && p.kind == ParamKind::kHead;
      auto* grad = params->grad(p.kind, p.layer).as<float>();
      for (std::int64_t e = 0; e < p.size(); ++e)
        grad[e] = factor * share * whole_grad(p.name, copy, step, p.global_begin + e);
    }
  }

  void step(int rank, std::int64_t number, double lr, float factor = 1.0F) {
    set_grads(rank, number, factor);
    optimizer->sync_tied(*stream);
    optimizer->sync_grads(*stream, 0);
    optimizer->apply(*stream, lr, number, factor);
    stream->sync();
  }

  RunConfig config;
  RankGrid grid;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Comm> dense, expert, pipeline, experts, tied;
  std::unique_ptr<Params> params;
  std::unique_ptr<Optimizer> optimizer;
};

constexpr double kLr = 0.01;

struct Outcome {
  Tensors values;
  std::vector<double> norms;  // of every rank after the last step
  int copies_differ = 0;      // copies of a tensor on several ranks that are not the same bits
};

Outcome train(const RunConfig& config, int steps, float factor = 1.0F) {
  Outcome out;
  std::mutex mutex;
  run_as_threads(config.world(), [&](World& world) {
    Rank rank(config, world);
    for (int s = 1; s <= steps; ++s) rank.step(world.rank(), s, kLr, factor);
    const std::lock_guard lock(mutex);
    out.norms.push_back(static_cast<double>(rank.optimizer->grad_norm().as<float>()[0]));
    for (const Param& p : rank.params->table().params) {
      std::vector<float>& whole = out.values[p.name];
      if (whole.empty()) whole.assign(static_cast<std::size_t>(p.global_size), std::nanf(""));
      const auto* value = rank.params->value(p.kind, p.layer).as<float>();
      float* to = whole.data() + p.global_begin;
      const auto bytes = static_cast<std::size_t>(p.size()) * sizeof(float);
      if (!std::isnan(to[0]) && std::memcmp(to, value, bytes) != 0) ++out.copies_differ;
      std::memcpy(to, value, bytes);
    }
  });
  return out;
}

// The parameters of the model, whole, and what AdamW in double makes of them.
struct Reference {
  std::map<std::string, std::vector<double>> values;
  double norm = 0.0;
};

Reference reference(RunConfig config, int steps) {
  config.parallel.pp = config.parallel.dp = config.parallel.ep = 1;
  const OptimizerConfig& o = config.optimizer;
  const ParamTable table = make_params(config, make_grid(config), make_partition(config), 0);
  const bool tied = config.model.tied_embeddings;
  const auto grad_of = [&](const Param& p, std::int64_t s, std::int64_t e) {
    double g = static_cast<double>(whole_grad(p.name, false, s, e));
    if (tied && p.kind == ParamKind::kEmbedding)
      g += static_cast<double>(whole_grad(p.name, true, s, e));
    return g;
  };
  Reference ref;
  std::map<std::string, std::vector<double>> m, v;
  for (int s = 1; s <= steps; ++s) {
    double squares = 0.0;
    for (const Param& p : table.params) {
      if (tied && p.kind == ParamKind::kHead) continue;
      for (std::int64_t e = 0; e < p.size(); ++e) squares += std::pow(grad_of(p, s, e), 2);
    }
    ref.norm = std::sqrt(squares);
    const double scale = o.clip > 0.0 ? std::min(1.0, o.clip / (ref.norm + 1e-6)) : 1.0;
    for (const Param& p : table.params) {
      if (tied && p.kind == ParamKind::kHead) continue;
      const auto size = static_cast<std::size_t>(p.size());
      std::vector<double>& w = ref.values[p.name];
      if (w.empty()) {
        std::vector<float> initial(size);
        init_values(p, 3, 0, p.size(), initial.data());
        w.assign(initial.begin(), initial.end());
        m[p.name].resize(size);
        v[p.name].resize(size);
      }
      for (std::size_t e = 0; e < size; ++e) {
        const double g = scale * grad_of(p, s, static_cast<std::int64_t>(e));
        double& me = m[p.name][e];
        double& ve = v[p.name][e];
        me = o.beta1 * me + (1 - o.beta1) * g;
        ve = o.beta2 * ve + (1 - o.beta2) * g * g;
        const double step = (me / (1 - std::pow(o.beta1, s))) /
                            (std::sqrt(ve / (1 - std::pow(o.beta2, s))) + o.eps);
        w[e] -= kLr * (step + (p.decay ? o.weight_decay : 0.0) * w[e]);
      }
    }
  }
  return ref;
}

void matches(const Outcome& got, const Reference& want, int steps) {
  CHECK(got.copies_differ == 0);
  for (const double norm : got.norms) {
    CHECK(norm == got.norms.front());
    // The sum of squares is rounded to fp32 a few times on its way.
    CHECK(norm == Approx(want.norm).epsilon(8 * std::numeric_limits<float>::epsilon()));
  }
  REQUIRE(got.values.size() == want.values.size());
  for (const auto& [name, values] : got.values) {
    double worst = 0.0;
    for (std::size_t e = 0; e < values.size(); ++e)
      worst = std::max(worst, std::abs(static_cast<double>(values[e]) - want.values.at(name)[e]));
    INFO(name);
    // Per step: one rounding of a value below 4, and a relative 1e-5 of a step of at most 2 lr
    // (gradients that nearly cancel across ranks lose digits before they are normalised).
    const double eps = std::numeric_limits<float>::epsilon();
    CHECK(worst <= steps * (2 * eps + 2 * kLr * 1e-5));
  }
}

}  // namespace

TEST_CASE("five steps of AdamW follow the formula on every layout") {
  const Layout layouts[] = {{1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {1, 2, 2},
                            {1, 4, 2}, {2, 1, 1}, {2, 2, 2}};
  for (const Layout& l : layouts) {
    for (const bool tied : {false, true}) {
      INFO("pp " << l.pp << " dp " << l.dp << " ep " << l.ep << " tied " << tied);
      RunConfig config = make_config(l, tied);
      matches(train(config, 5), reference(config, 5), 5);
    }
  }
}

TEST_CASE("clipping scales the gradient to the norm asked for") {
  for (const Layout& l : {Layout{1, 1, 1}, Layout{2, 2, 2}}) {
    RunConfig config = make_config(l, false);
    config.optimizer.clip = 0.5;
    config.optimizer.eps = 0.1;  // makes the update depend on the gradient's size
    const Reference want = reference(config, 2);
    REQUIRE(want.norm > 10 * config.optimizer.clip);
    matches(train(config, 2), want, 2);
  }
}

TEST_CASE("a power of two as factor of the gradients changes no bit") {
  for (const Layout& l : {Layout{1, 1, 1}, Layout{2, 2, 2}}) {
    for (const double clip : {0.0, 0.5}) {
      RunConfig config = make_config(l, true);
      config.optimizer.clip = clip;
      const Outcome plain = train(config, 3), scaled = train(config, 3, 65536.0F);
      CHECK(plain.values == scaled.values);
      CHECK(plain.norms == scaled.norms);
    }
  }
}

TEST_CASE("gradients that are not finite change nothing, in the first step and later") {
  const RunConfig config = make_config({2, 2, 2}, false);
  const Outcome untouched = train(config, 0);
  const Outcome overflowed = train(config, 1, std::numeric_limits<float>::infinity());
  CHECK(overflowed.values == untouched.values);
  CHECK(overflowed.copies_differ == 0);
  for (const double norm : overflowed.norms) CHECK_FALSE(std::isfinite(norm));

  const Outcome plain = train(config, 2);
  std::mutex mutex;
  run_as_threads(config.world(), [&](World& world) {
    Rank rank(config, world);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto& [number, factor] :
         {std::pair{1, infinity}, {1, 1.0F}, {2, infinity}, {2, 1.0F}})
      rank.step(world.rank(), number, kLr, factor);
    const std::lock_guard lock(mutex);
    for (const Param& p : rank.params->table().params) {
      const auto* value = rank.params->value(p.kind, p.layer).as<float>();
      const std::vector<float>& whole = plain.values.at(p.name);
      CHECK(std::equal(value, value + p.size(), whole.begin() + p.global_begin));
    }
  });
}

TEST_CASE("two runs give the same bits") {
  const RunConfig config = make_config({2, 2, 2}, true);
  const Outcome a = train(config, 3), b = train(config, 3);
  CHECK(a.values == b.values);
  CHECK(a.norms == b.norms);
}

TEST_CASE("embeddings are spared from decay when asked") {
  RunConfig config = make_config({1, 2, 1}, false);
  config.optimizer.decay_embeddings = false;
  config.optimizer.weight_decay = 5.0;
  matches(train(config, 2), reference(config, 2), 2);
}

TEST_CASE("published master values reach every rank") {
  const RunConfig config = make_config({1, 3, 1}, false);
  std::vector<int> wrong(3, 0);
  run_as_threads(3, [&](World& world) {
    Rank rank(config, world);
    std::int64_t owned = 0;
    for (const OptimizerShard& s : rank.optimizer->shards()) {
      owned += s.count;
      for (std::int64_t i = 0; i < s.count; ++i)
        s.master.as<float>()[i] = static_cast<float>(s.begin + i);
    }
    rank.optimizer->publish(*rank.stream);
    rank.stream->sync();
    int& bad = wrong[static_cast<std::size_t>(world.rank())];
    for (const OptimizerShard& s : rank.optimizer->shards()) {
      const View all = rank.params->bucket_values(s.bucket);
      owned -= all.size() / 3;
      for (std::int64_t i = 0; i < all.size(); ++i)
        if (all.as<float>()[i] != static_cast<float>(i)) ++bad;
    }
    if (owned != 0) ++bad;
  });
  CHECK(wrong == std::vector<int>{0, 0, 0});
}

}  // namespace tandem
