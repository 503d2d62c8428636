// Forward values against plain loops in double: what a gradient check alone cannot see.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "harness.h"

namespace tandem {
namespace {

using test::Harness;
using test::tiny_config;
using Rows = std::vector<std::vector<double>>;  // [rows][cols]
using Row = std::vector<double>;

Rows rows_of(View v) {
  Rows rows(static_cast<std::size_t>(v.rows), Row(static_cast<std::size_t>(v.cols)));
  const auto* at = v.as<float>();
  for (Row& row : rows)
    for (double& x : row) x = static_cast<double>(*at++);
  return rows;
}

Row times(const Rows& w, const Row& x) {  // W x
  Row y;
  for (const Row& row : w) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

Row normed(const Row& x, const Rows& weight, double eps) {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * rstd * weight[i][0]);
  return y;
}

Row swiglu(const Row& gate_up) {
  const std::size_t inner = gate_up.size() / 2;
  Row act;
  for (std::size_t i = 0; i < inner; ++i)
    act.push_back(gate_up[i] / (1.0 + std::exp(-gate_up[i])) * gate_up[inner + i]);
  return act;
}

Rows part(const Rows& stack, std::size_t index, std::size_t count) {
  const auto begin = stack.begin() + static_cast<std::ptrdiff_t>(index * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// out = h + sum over the k most probable experts of weight * expert(norm(h)).
Row moe_layer(const RunConfig& c, const Row& h, const Rows& norm, const Rows& router,
              const Rows& gate_up, const Rows& down) {
  const Row x = normed(h, norm, c.model.norm_eps);
  Row p = times(router, x);
  double total = 0.0;
  for (double& v : p) total += v = std::exp(v);
  for (double& v : p) v /= total;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t e = 0; e < p.size(); ++e) order.emplace_back(-p[e], e);
  std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(c.model.topk));
  double chosen = 0.0;
  for (const auto& [negative, e] : order) chosen -= negative;

  Row out = h;
  for (const auto& [negative, e] : order) {
    const Row act =
        swiglu(times(part(gate_up, e, 2 * static_cast<std::size_t>(c.model.moe_ffn)), x));
    const Row y = times(part(down, e, static_cast<std::size_t>(c.model.hidden)), act);
    const double weight = c.model.norm_topk_prob ? -negative / chosen : -negative;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * y[i];
  }
  return out;
}

double worst(const Rows& a, const Rows& b) {
  double diff = 0.0;
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c)
      diff = std::max(diff, std::abs(a[r][c] - b[r][c]));
  return diff;
}

// Values are of order 1 and come from three products of length <= 16: 3 * 16 roundings, times two.
constexpr double kTolerance = 96 * std::numeric_limits<float>::epsilon();

}  // namespace

TEST_CASE("a MoE layer adds the weighted outputs of the chosen experts") {
  RunConfig config = tiny_config();
  config.model.norm_topk_prob = GENERATE(true, false);
  Rows got, want;
  run_as_threads(1, [&](World& world) {
    Harness h(config, world, 1);
    h.forward();
    const auto value = [&](ParamKind kind) { return rows_of(h.params().value(kind, 0)); };
    got = rows_of(h.slot(SlotKind::kX, 1, 0));
    for (const Row& row : rows_of(h.slot(SlotKind::kH, 0, 0)))
      want.push_back(moe_layer(config, row, value(ParamKind::kMlpNorm), value(ParamKind::kRouter),
                               value(ParamKind::kExpertGateUp), value(ParamKind::kExpertDown)));
  });
  CHECK(worst(got, want) <= kTolerance);
}

TEST_CASE("a dense layer adds the MLP of the normed residual") {
  RunConfig config = tiny_config();
  config.model.moe_pattern = {0};
  Rows got, want;
  run_as_threads(1, [&](World& world) {
    Harness h(config, world, 1);
    h.forward();
    const auto value = [&](ParamKind kind) { return rows_of(h.params().value(kind, 0)); };
    got = rows_of(h.slot(SlotKind::kX, 1, 0));
    for (Row row : rows_of(h.slot(SlotKind::kH, 0, 0))) {
      const Row x = normed(row, value(ParamKind::kMlpNorm), config.model.norm_eps);
      const Row y =
          times(value(ParamKind::kMlpDown), swiglu(times(value(ParamKind::kMlpGateUp), x)));
      for (std::size_t i = 0; i < row.size(); ++i) row[i] += y[i];
      want.push_back(row);
    }
  });
  CHECK(worst(got, want) <= kTolerance);
}

TEST_CASE("the head's loss is the cross-entropy of the labels for every chunk size") {
  for (const int chunk : {1, 5, 12, 1000}) {
    RunConfig config = tiny_config();
    config.model.aux_loss_coef = config.model.z_loss_coef = 0.0;
    config.train.loss_chunk_tokens = chunk;
    double got = 0.0, want = 0.0;
    run_as_threads(1, [&](World& world) {
      Harness h(config, world, 1);
      got = h.forward();
      const BatchView batch = h.context(0, false).batch;
      const Rows head = rows_of(h.params().value(ParamKind::kHead, -1));
      const Rows norm = rows_of(h.params().value(ParamKind::kFinalNorm, -1));
      const Rows x = rows_of(h.slot(SlotKind::kX, 1, 0));
      for (std::size_t t = 0; t < x.size(); ++t) {
        const Row logits = times(head, normed(x[t], norm, config.model.norm_eps));
        double sum = 0.0;
        for (const double v : logits) sum += std::exp(v);
        const auto label = static_cast<std::size_t>(batch.labels.as<std::int32_t>()[t]);
        want += (std::log(sum) - logits[label]) / static_cast<double>(x.size());
      }
    });
    INFO("chunk " << chunk);
    CHECK(got == Approx(want).epsilon(0).margin(kTolerance));
  }
}

}  // namespace tandem
