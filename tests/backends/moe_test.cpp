// Router and permutation ops against float64 and against plain index loops; ids that lie outside.
#include <array>
#include <numeric>

#include "reference.h"
#include "tandem/base/error.h"

namespace tandem::test {
namespace {

struct Route {
  std::int64_t tokens, experts, topk;
};

struct Routing {
  Expected probs;
  Values chosen, weights, z;
};

Routing route(const Values& logits, const Route& r, bool renormalise) {
  Routing out{Expected(logits.size()), {}, {}, {}};
  for (std::int64_t t = 0; t < r.tokens; ++t) {
    const double z = reference::log_sum_exp(&logits[reference::at(t, r.experts, 0)], r.experts);
    out.z.push_back(z);
    Values p;
    for (std::int64_t e = 0; e < r.experts; ++e) {
      p.push_back(std::exp(logits[reference::at(t, r.experts, e)] - z));
      out.probs.add(reference::at(t, r.experts, e), p.back());
    }
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
    double mass = 0;
    for (std::int64_t j = 0; j < r.topk; ++j) mass += p[order[reference::at(j, 1, 0)]];
    for (std::int64_t j = 0; j < r.topk; ++j) {
      const std::size_t e = order[reference::at(j, 1, 0)];
      out.chosen.push_back(static_cast<double>(e));
      out.weights.push_back(renormalise ? p[e] / mass : p[e]);
    }
  }
  return out;
}

struct RouterGradient {
  double aux_scale, z_scale;
  Values load, d_weights;
};

Expected route_backward(const Routing& routing, const Route& r, bool renormalise,
                        const RouterGradient& in) {
  Expected d_logits(routing.probs.v.size());
  for (std::int64_t t = 0; t < r.tokens; ++t) {
    const double* p = &routing.probs.v[reference::at(t, r.experts, 0)];
    double mass = 0;
    Expected mean(1), inner(1), d(static_cast<std::size_t>(r.experts));
    for (std::int64_t j = 0; j < r.topk; ++j) {
      const std::size_t i = reference::at(t, r.topk, j);
      mass += p[static_cast<std::size_t>(routing.chosen[i])];
      mean.add(0, in.d_weights[i] * routing.weights[i]);
    }
    for (std::int64_t j = 0; j < r.topk; ++j) {
      const std::size_t i = reference::at(t, r.topk, j);
      const auto e = static_cast<std::size_t>(routing.chosen[i]);
      const double g = renormalise ? (in.d_weights[i] - mean.v[0]) / mass : in.d_weights[i];
      const double size = std::abs(in.d_weights[i]) + mean.magnitude[0];
      d.add(e, g, renormalise ? size / mass : size);
    }
    for (std::size_t e = 0; e < d.v.size(); ++e) {
      if (!in.load.empty()) d.add(e, in.aux_scale * in.load[e]);
      inner.add(0, p[e] * d.v[e], p[e] * d.magnitude[e]);
    }
    for (std::size_t e = 0; e < d.v.size(); ++e) {
      const std::size_t i = reference::at(t, r.experts, 0) + e;
      const double z = in.z_scale * 2 * routing.z[reference::at(t, 1, 0)];
      d_logits.add(i, p[e] * (d.v[e] - inner.v[0] + z),
                   p[e] * (d.magnitude[e] + inner.magnitude[0] + std::abs(z)));
    }
  }
  return d_logits;
}

TEST_CASE("router: the reference gradient") {
  Random random(9);
  const Route r{4, 5, 2};
  const Values logits = random.values(DType::kF32, r.tokens, r.experts, 3).v;
  const RouterGradient in{0.3, 0.2, {1, 2, 0, 4, 1}, random.values(DType::kF32, 4, 2).v};
  for (const bool renormalise : {false, true}) {
    const auto loss = [&](const Values& x) {
      const Routing routing = route(x, r, renormalise);
      double total = weighted_sum(routing.weights, in.d_weights);
      for (std::size_t i = 0; i < routing.probs.v.size(); ++i)
        total += in.aux_scale * in.load[i % 5] * routing.probs.v[i];
      for (const double z : routing.z) total += in.z_scale * z * z;
      return total;
    };
    check_gradient(logits, loss,
                   route_backward(route(logits, r, renormalise), r, renormalise, in).v);
  }
}

template <class Backend>
void check_router(Backend& backend, const Route& r, bool renormalise, bool with_load) {
  CAPTURE(r.tokens, r.experts, r.topk, renormalise, with_load);
  const double range = 4;
  Random random(static_cast<std::uint64_t>(r.tokens * 100 + r.experts));
  Tensor logits = random.values(DType::kF32, r.tokens, r.experts, range);
  for (double& x : logits.v) x = std::round(x * 4) / 4;  // many ties
  const Routing expected = route(logits.v, r, renormalise);
  const View probs = backend.room(DType::kF32, r.tokens, r.experts);
  const View chosen = backend.room(DType::kI32, r.tokens, r.topk);
  const View weights = backend.room(DType::kF32, r.tokens, r.topk);
  const View z = backend.room(DType::kF32, r.tokens, 1);
  backend.run(ops::RouterFwd{backend.put(logits), probs, chosen, weights, z, renormalise});
  const double factor = 2 * range + root(r.experts) + 6;
  CHECK_CLOSE(backend.get(probs), expected.probs, factor);
  CHECK(backend.get(chosen).v == expected.chosen);
  CHECK_CLOSE(backend.get(weights), by_size(expected.weights), 2 * factor);
  Expected exact_z(expected.z.size());
  for (std::size_t i = 0; i < expected.z.size(); ++i) exact_z.add(i, expected.z[i], 1 + range);
  CHECK_CLOSE(backend.get(z), exact_z, root(r.experts) + 4);

  const auto saved = [&](const Values& v, std::int64_t cols) {
    return tensor(DType::kF32, r.tokens, cols, v);
  };
  Routing stored = expected;  // the backward starts from what was stored
  stored.probs.v = saved(expected.probs.v, r.experts).v;
  stored.weights = saved(expected.weights, r.topk).v;
  stored.z = saved(expected.z, 1).v;
  RouterGradient in{0.25, 0.125, {}, random.values(DType::kF32, r.tokens, r.topk).v};
  if (with_load) in.load = random.values(DType::kF32, r.experts, 1).v;
  const View d_logits = backend.room(DType::kF32, r.tokens, r.experts);
  backend.run(ops::RouterBwd{
      backend.put(saved(in.d_weights, r.topk)), backend.put(saved(stored.probs.v, r.experts)),
      chosen, backend.put(saved(stored.weights, r.topk)), backend.put(saved(stored.z, 1)),
      with_load ? backend.put(tensor(DType::kF32, r.experts, 1, in.load)) : View{}, d_logits, 0.25F,
      0.125F, renormalise});
  CHECK_CLOSE(backend.get(d_logits), route_backward(stored, r, renormalise, in),
              root(r.experts) + root(r.topk) + 8);
}

TEST_CASE("router") {
  on_every_backend([](auto& backend) {
    for (const Route& r :
         {Route{0, 4, 2}, {1, 1, 1}, {9, 8, 2}, {70, 37, 5}, {600, 8, 8}, {9, 3001, 4}})
      for (const bool renormalise : {false, true})
        for (const bool with_load : {false, true}) check_router(backend, r, renormalise, with_load);
  });
}

bool all_nan(const Tensor& t, std::int64_t row) {
  const auto cols = static_cast<std::size_t>(t.cols);
  const double* first = &t.v[static_cast<std::size_t>(row) * cols];
  return std::all_of(first, first + cols, [](double x) { return std::isnan(x); });
}

// A diverging run computes on until the step's losses are looked at: nothing may be written
// outside, and the token must not change what the others get.
TEST_CASE("a token whose logits are not finite goes to the first experts and spoils no other") {
  on_every_backend([](auto& backend) {
    const Route r{19, 6, 3};
    const std::int64_t spoiled = 10;
    Tensor logits = Random(4).values(DType::kF32, r.tokens, r.experts, 3);
    const auto run = [&] {
      const View probs = backend.room(DType::kF32, r.tokens, r.experts);
      const View chosen = backend.room(DType::kI32, r.tokens, r.topk);
      const View weights = backend.room(DType::kF32, r.tokens, r.topk);
      const View z = backend.room(DType::kF32, r.tokens, 1);
      backend.run(ops::RouterFwd{backend.put(logits), probs, chosen, weights, z, true});
      const View counts = backend.room(DType::kI32, r.experts, 1);
      const View rows = backend.room(DType::kI32, r.tokens, r.topk);
      backend.run(ops::PermutePlan{chosen, counts, rows, View{}});
      return std::array{backend.get(probs), backend.get(chosen), backend.get(weights),
                        backend.get(z), backend.get(rows)};
    };
    const auto healthy = run();
    const double inf = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<Values> rows = {{0, 1, nan, 2, 3, 1},  {inf, 1, 0, 2, 3, 1},
                                      {0, 1, 0, 2, 3, -nan}, Values(6, nan),
                                      Values(6, inf),        Values(6, -inf)};
    for (const Values& row : rows) {
      CAPTURE(row);
      std::copy(row.begin(), row.end(), logits.v.begin() + spoiled * r.experts);
      const auto got = run();
      CHECK(all_nan(got[0], spoiled));
      CHECK(all_nan(got[2], spoiled));
      CHECK(all_nan(got[3], spoiled));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto cols = static_cast<std::size_t>(got[i].cols);
        for (std::size_t j = 0; j < got[i].v.size(); ++j)
          if (i < 4 && j / cols != static_cast<std::size_t>(spoiled))
            CHECK(got[i].v[j] == healthy[i].v[j]);
      }
      for (std::int64_t j = 0; j < r.topk; ++j)
        CHECK(got[1].v[reference::at(spoiled, r.topk, j)] == static_cast<double>(j));
      Values placed = got[4].v;  // every row of the expert-major order once
      std::sort(placed.begin(), placed.end());
      for (std::size_t i = 0; i < placed.size(); ++i) CHECK(placed[i] == static_cast<double>(i));
    }
  });
}

TEST_CASE("router loss") {
  on_every_backend([](auto& backend) {
    for (const std::int64_t tokens : {0, 1, 300})
      for (const bool accumulate : {false, true}) {
        CAPTURE(tokens, accumulate);
        const std::int64_t experts = 9;
        Random random(12);
        const Tensor probs = random.values(DType::kF32, tokens, experts);
        const Tensor z = random.values(DType::kF32, tokens, 1);
        const Tensor load = random.values(DType::kF32, experts, 1);
        const Tensor before = random.values(DType::kF32, experts, 1);
        const View prob_sum = backend.put(before), out = backend.room(DType::kF32, 1, 2);
        backend.run(ops::RouterLoss{backend.put(probs), backend.put(z), backend.put(load), prob_sum,
                                    out, accumulate});
        Expected sums(before.v.size()), losses(2);
        for (std::size_t e = 0; e < sums.v.size(); ++e) {
          if (accumulate) sums.v[e] += before.v[e];     // sums are taken in double: only the
          for (std::size_t t = 0; t < z.v.size(); ++t)  // result's own rounding counts
            sums.v[e] += probs.v[t * sums.v.size() + e];
          losses.v[0] += load.v[e] * sums.v[e];
        }
        for (const double x : z.v) losses.v[1] += x * x;
        CHECK_CLOSE(backend.get(prob_sum), sums, 0);
        CHECK_CLOSE(backend.get(out), losses, 0);
      }
  });
}

// Choices in which expert 0 gets nothing, or everything.
Tensor choices(const Route& r, bool all_to_last) {
  Random random(static_cast<std::uint64_t>(r.tokens));
  Tensor chosen = tensor(DType::kI32, r.tokens, r.topk);
  for (double& e : chosen.v)
    e = static_cast<double>(all_to_last ? r.experts - 1 : random.below(r.experts));
  return chosen;
}

template <class Backend>
void check_permutation(Backend& backend, const Route& r, std::int64_t n, DType dtype,
                       bool all_to_last) {
  CAPTURE(r.tokens, r.experts, r.topk, n, name_of(dtype), all_to_last);
  const Tensor chosen = choices(r, all_to_last);
  const std::int64_t pairs = r.tokens * r.topk;
  Values counts(static_cast<std::size_t>(r.experts)), rows(chosen.v.size());
  double next = 0;
  for (std::int64_t e = 0; e < r.experts; ++e)
    for (std::size_t i = 0; i < chosen.v.size(); ++i)
      if (chosen.v[i] == static_cast<double>(e)) {
        rows[i] = next++;
        ++counts[reference::at(e, 1, 0)];
      }
  const View vcounts = backend.room(DType::kI32, r.experts, 1);
  const View vrows = backend.room(DType::kI32, r.tokens, r.topk);
  const View load = backend.room(DType::kF32, r.experts, 1);
  backend.run(ops::PermutePlan{backend.put(chosen), vcounts, vrows, load});
  CHECK(backend.get(vcounts).v == counts);
  CHECK(backend.get(vrows).v == rows);
  CHECK(backend.get(load).v == counts);

  Random random(14);
  const Tensor x = random.values(dtype, r.tokens, n), in = random.values(dtype, pairs, n);
  const Tensor add = random.values(dtype, r.tokens, n);
  const Tensor w = random.values(DType::kF32, r.tokens, r.topk);
  const View out = backend.room(dtype, pairs, n), w_out = backend.room(DType::kF32, pairs, 1);
  const View w_back = backend.room(DType::kF32, r.tokens, r.topk);
  backend.run(ops::PermuteRows{backend.put(x), vrows, out});
  backend.run(ops::PermuteWeights{backend.put(w), vrows, w_out});
  backend.run(ops::UnpermuteWeights{w_out, vrows, w_back});
  Values moved(in.v.size()), moved_w(w.v.size());
  Expected sum(x.v.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(rows[i]);
    const auto t = static_cast<std::int64_t>(i) / r.topk;
    moved_w[static_cast<std::size_t>(row)] = w.v[i];
    for (std::int64_t c = 0; c < n; ++c) {
      moved[reference::at(row, n, c)] = x.v[reference::at(t, n, c)];
      sum.add(reference::at(t, n, c), in.v[reference::at(row, n, c)]);
    }
  }
  CHECK(backend.get(out).v == moved);
  CHECK(backend.get(w_out).v == moved_w);
  CHECK(backend.get(w_back).v == w.v);
  for (const bool with_add : {false, true}) {
    const View total = backend.room(dtype, r.tokens, n);
    backend.run(
        ops::UnpermuteSum{backend.put(in), vrows, with_add ? backend.put(add) : View{}, total});
    for (std::size_t i = 0; with_add && i < add.v.size(); ++i) sum.add(i, add.v[i]);
    CHECK_CLOSE(backend.get(total), sum, static_cast<double>(r.topk));
  }
}

TEST_CASE("permutation") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const bool all_to_last : {false, true})
        for (const Route& r :
             {Route{0, 4, 2}, {1, 1, 1}, {13, 8, 3}, {400, 5, 2}, {40, 17000, 2}}) {
          check_permutation(backend, r, 1, dtype, all_to_last);
          check_permutation(backend, r, 37, dtype, all_to_last);
        }
  });
}

TEST_CASE("expert offsets") {
  on_every_backend([](auto& backend) {
    const View offsets = backend.room(DType::kI32, 4, 1);
    backend.run(
        ops::ExpertOffsets{backend.put(tensor(DType::kI32, 2, 3, {1, 0, 5, 2, 0, 7})), offsets});
    CHECK(backend.get(offsets).v == Values{0, 3, 3, 15});
    backend.run(ops::ExpertOffsets{backend.put(tensor(DType::kI32, 0, 3)), offsets});
    CHECK(backend.get(offsets).v == Values{0, 0, 0, 0});
  });
}

template <class Backend, class Op>
void check_refused(Backend& backend, const Op& op, const std::string& id) {
  try {
    backend.run(op);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Catch::Contains(id));
  }
}

TEST_CASE("ids outside their range name themselves and their position") {
  if (tests_cuda()) {
    WARN("no CUDA device is visible to this case: a kernel can only trap, which ends the process");
    return;
  }
  on_every_backend([](auto& backend) {
    for (const int bad : {-1, 5}) {
      const View ids = backend.put(tensor(DType::kI32, 3, 1, {4, 0, static_cast<double>(bad)}));
      const View table = backend.room(DType::kF32, 5, 2), out = backend.room(DType::kF32, 3, 2);
      const View logits = backend.room(DType::kF32, 3, 5), loss = backend.room(DType::kF32, 3, 1);
      const View counts = backend.room(DType::kI32, 5, 1), rows = backend.room(DType::kI32, 3, 1);
      const std::string text = "[2] is " + std::to_string(bad);
      check_refused(backend, ops::EmbeddingFwd{ids, table, out}, text);
      check_refused(backend, ops::EmbeddingBwd{ids, out, table}, text);
      check_refused(backend, ops::CrossEntropy{logits, ids, loss, logits, 1}, text);
      check_refused(backend, ops::PermutePlan{ids, counts, rows, View{}}, text);
      check_refused(backend, ops::PermuteRows{out, ids, table}, text);
      check_refused(backend, ops::UnpermuteSum{table, ids, View{}, out}, text);
    }
  });
}

}  // namespace
}  // namespace tandem::test
