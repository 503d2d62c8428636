// Products, sums, casts and the optimizer step against float64.
#include "grouped_check.h"

namespace tandem::test {
namespace {

struct Product {
  std::int64_t m, n, k;
};

template <class Backend>
void check_gemm(Backend& backend, Product p, DType dtype, DType out_dtype, bool trans_a,
                bool trans_b, bool accumulate) {
  CAPTURE(p.m, p.n, p.k, name_of(dtype), name_of(out_dtype), trans_a, trans_b, accumulate);
  Random random(static_cast<std::uint64_t>(p.m * 31 + p.n * 7 + p.k));
  const Tensor a = trans_a ? random.values(dtype, p.k, p.m) : random.values(dtype, p.m, p.k);
  const Tensor b = trans_b ? random.values(dtype, p.n, p.k) : random.values(dtype, p.k, p.n);
  const Tensor before = random.values(out_dtype, p.m, p.n);
  const View c = accumulate ? backend.put(before) : backend.room(out_dtype, p.m, p.n);
  backend.run(ops::Gemm{backend.put(a), backend.put(b), c, trans_a, trans_b, accumulate});
  Expected expected = reference::gemm(a.v, b.v, p.m, p.n, p.k, trans_a, trans_b);
  if (accumulate)
    for (std::size_t i = 0; i < before.v.size(); ++i) expected.add(i, before.v[i]);
  CHECK_CLOSE(backend.get(c), expected, root(p.k) + 2);
}

TEST_CASE("gemm") {
  on_every_backend([](auto& backend) {
    for (const Product p : {Product{1, 1, 1},
                            {3, 5, 7},
                            {17, 33, 65},
                            {0, 4, 4},
                            {4, 0, 4},
                            {3, 4, 0},
                            {1, 40, 600},
                            {130, 8, 70}})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) {
          for (const DType dtype : kStorage) {
            check_gemm(backend, p, dtype, dtype, trans_a, trans_b, false);
            check_gemm(backend, p, dtype, DType::kF32, trans_a, trans_b, true);
          }
          check_gemm(backend, p, DType::kBF16, DType::kF32, trans_a, trans_b, false);
          check_gemm(backend, p, DType::kF16, DType::kF32, trans_a, trans_b, false);
        }
    for (const DType dtype : kStorage) {  // several pieces, by rows and by columns
      check_gemm(backend, {333, 70, 129}, dtype, dtype, false, true, false);
      check_gemm(backend, {70, 333, 129}, dtype, DType::kF32, true, false, true);
    }
  });
}

TEST_CASE("grouped gemm") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage) {
      check_grouped(backend, {5, 0, 1, 19}, 9, 13, dtype);
      check_grouped(backend, {0, 0, 0}, 4, 6, dtype);
      check_grouped(backend, {7}, 3, 5, dtype);
      check_grouped(backend, {0, 300, 0, 0}, 70, 90, dtype);
      check_grouped(backend, {40, 520, 1, 260}, 70, 120, dtype);  // several pieces each
      check_grouped(backend, {5, 0, 1, 19}, 16, 8, dtype);        // widths that tensor cores take
      check_grouped(backend, {40, 520, 1, 260}, 200, 136, dtype);
      check_grouped(backend, {0, 0, 90, 0, 200, 0}, 200, 136, dtype);  // idle between busy ones
      check_grouped(backend, {0, 0, 0}, 64, 136, dtype);
      check_grouped(backend, {70, 0, 300, 64, 1, 200}, 300, 400, dtype);  // many tiles
    }
  });
}

TEST_CASE("add, add to, cast") {
  on_every_backend([](auto& backend) {
    for (const std::int64_t n : {0, 1, 31, 20001})
      for (const DType dtype : kStorage) {
        CAPTURE(n, name_of(dtype));
        Random random(static_cast<std::uint64_t>(n));
        const Tensor a = random.values(dtype, n, 1), b = random.values(dtype, n, 1);
        const Tensor wide = random.values(DType::kF32, n, 1);
        Expected sum = by_size(a.v), onto = by_size(wide.v);
        for (std::size_t i = 0; i < a.v.size(); ++i) {
          sum.add(i, b.v[i]);
          onto.add(i, b.v[i]);
        }
        const View in_place = backend.put(a), to = backend.put(wide);
        backend.run(ops::Add{in_place, backend.put(b), in_place});
        CHECK_CLOSE(backend.get(in_place), sum, 1);
        backend.run(ops::AddTo{backend.put(b), to});
        CHECK_CLOSE(backend.get(to), onto, 1);

        Tensor fine = tensor(DType::kF32, n, 1);
        for (double& x : fine.v) x = static_cast<float>(random.uniform());
        const View cast = backend.room(dtype, n, 1);
        backend.run(ops::Cast{backend.put(fine), cast});
        CHECK(backend.get(cast).v == tensor(dtype, n, 1, fine.v).v);  // nearest even, exactly
        const View back = backend.room(DType::kF32, n, 1);
        backend.run(ops::Cast{backend.put(a), back});
        CHECK(backend.get(back).v == a.v);
      }
  });
}

TEST_CASE("two halves of a narrow type hold twice its digits") {
  on_every_backend([](auto& backend) {
    for (const auto& [dtype, bits] : {std::pair{DType::kBF16, 8}, {DType::kF16, 11}})
      for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {5, 3}, {70, 128}}) {
        CAPTURE(name_of(dtype), rows, cols);
        Random random(12);
        Tensor x = tensor(DType::kF32, rows, cols);
        for (double& v : x.v) v = static_cast<float>(std::copysign(0.75 + random.uniform() / 4, random.uniform()));
        const View halves = backend.room(dtype, rows, 2 * cols);
        backend.run(ops::SplitHalves{backend.put(x), halves});
        const Tensor found = backend.get(halves);
        double worst = 0;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c) {
            const double whole = x.v[reference::at(r, cols, c)];
            const double hi = found.v[reference::at(r, 2 * cols, c)];
            const double lo = found.v[reference::at(r, 2 * cols, cols + c)];
            CHECK(hi == tensor(dtype, 1, 1, {whole}).v[0]);
            worst = std::max(worst, std::abs(hi + lo - whole) / std::abs(whole));
          }
        CHECK(worst <= std::ldexp(1.0, -2 * bits - 1));  // each half rounds to half its last place
      }
  });
}

TEST_CASE("cast keeps ties even, infinities and NaN") {
  on_every_backend([](auto& backend) {
    const double inf = std::numeric_limits<double>::infinity();
    const double ulp = 1.0 / 128;  // of bf16 at 1
    const Tensor in{DType::kF32, 6, 1, {1 + ulp / 2, 1 + 1.5 * ulp, -1 - ulp / 2, inf, -inf, NAN}};
    const View out = backend.room(DType::kBF16, 6, 1);
    backend.run(ops::Cast{backend.put(in), out});
    const Values v = backend.get(out).v;
    CHECK(Values(v.begin(), v.begin() + 5) == Values{1, 1 + 2 * ulp, -1, inf, -inf});
    CHECK(std::isnan(v[5]));
  });
}

TEST_CASE("cast to fp16 rounds to even, keeps subnormals and overflows to infinity") {
  on_every_backend([](auto& backend) {
    const double inf = std::numeric_limits<double>::infinity();
    const double ulp = 1.0 / 1024;  // of fp16 at 1
    const double least = std::ldexp(1.0, -24), below = std::nextafterf(65520.0F, 0.0F);
    const Values from{1 + ulp / 2, 1 + 1.5 * ulp, -1 - ulp / 2,  least,          least / 2,
                      1.5 * least, 2.5 * least,   -0.75 * least, 1023.5 * least, 65504,
                      below,       65520,         -65520,        1e30,           inf,
                      -inf,        NAN,           1e-30};
    const Values to{1,     1 + 2 * ulp, -1,  least, 0,   2 * least, 2 * least, -least, 1024 * least,
                    65504, 65504,       inf, -inf,  inf, inf,       -inf,      NAN,    0};
    const auto n = static_cast<std::int64_t>(from.size());
    const View out = backend.room(DType::kF16, n, 1);
    backend.run(ops::Cast{backend.put({DType::kF32, n, 1, from}), out});
    const Values v = backend.get(out).v;
    for (std::size_t i = 0; i < v.size(); ++i) {
      CAPTURE(from[i], to[i], v[i]);
      CHECK((v[i] == to[i] || (std::isnan(v[i]) && std::isnan(to[i]))));
    }
  });
}

TEST_CASE("every fp16 number widens exactly and comes back") {
  on_every_backend([](auto& backend) {
    Tensor all{DType::kF16, 0x7c00, 1, {}};  // those with a sign differ in the sign alone
    for (std::uint16_t bits = 0; bits < 0x7c00; ++bits)
      all.v.push_back((bits % 2 == 0 ? 1 : -1) * f16_value(bits));
    const View wide = backend.room(DType::kF32, 0x7c00, 1),
               back = backend.room(DType::kF16, 0x7c00, 1);
    backend.run(ops::Cast{backend.put(all), wide});
    CHECK(backend.get(wide).v == all.v);
    backend.run(ops::Cast{wide, back});
    CHECK(backend.get(back).v == all.v);
  });
}

TEST_CASE("sum and square sum") {
  on_every_backend([](auto& backend) {
    for (const std::int64_t n : {0, 1, 33, 30000}) {
      CAPTURE(n);
      Random random(static_cast<std::uint64_t>(n));
      const Tensor in = random.values(DType::kF32, n, 1);
      const View total = backend.put(tensor(DType::kF32, 1, 1, {3}));
      const View squares = backend.room(DType::kF32, 1, 1);
      backend.run(ops::Sum{backend.put(in), total});
      backend.run(ops::SquareSum{backend.put(in), squares});
      Expected sum(1), square(1);
      sum.v[0] = 3;
      for (const double x : in.v) {
        sum.v[0] += x;  // added in double: no magnitude, only the final rounding counts
        square.v[0] += x * x;
      }
      CHECK_CLOSE(backend.get(total), sum, 0);
      CHECK_CLOSE(backend.get(squares), square, 0);
    }
  });
}

TEST_CASE("clip scale") {
  on_every_backend([](auto& backend) {
    for (const float clip : {0.0F, 1.0F, 100.0F}) {
      const View norm = backend.room(DType::kF32, 1, 1), scale = backend.room(DType::kF32, 1, 1);
      backend.run(ops::ClipScale{backend.put(tensor(DType::kF32, 1, 1, {9})), norm, scale, clip});
      CHECK_CLOSE(backend.get(norm), by_size({3}), 1);
      CHECK_CLOSE(backend.get(scale), by_size({clip == 1.0F ? 1 / 3.000001 : 1.0}), 2);

      // Of gradients 1024 times as large: the norm is the true one, the scale undoes the factor.
      const View norm2 = backend.room(DType::kF32, 1, 1), scale2 = backend.room(DType::kF32, 1, 1);
      const View large = backend.put(tensor(DType::kF32, 1, 1, {9.0 * 1024 * 1024}));
      backend.run(ops::ClipScale{large, norm2, scale2, clip, 1024.0F});
      CHECK(backend.get(norm2).v == backend.get(norm).v);
      CHECK(backend.get(scale2).v[0] * 1024 == backend.get(scale).v[0]);
    }
    const View norm = backend.room(DType::kF32, 1, 1), scale = backend.room(DType::kF32, 1, 1);
    const Tensor infinite{DType::kF32, 1, 1, {std::numeric_limits<double>::infinity()}};
    backend.run(ops::ClipScale{backend.put(infinite), norm, scale, 1.0F, 1024.0F});
    CHECK(std::isnan(backend.get(scale).v[0]));
  });
}

// Layouts cut parameters and state at other places, and promise the same bits.
TEST_CASE("adamw gives an element the same bits wherever it stands") {
  on_every_backend([](auto& backend) {
    constexpr std::int64_t kAll = 75;
    for (const DType dtype : kStorage) {
      Random random(7);
      const Tensor master = random.values(DType::kF32, kAll, 1),
                   m = random.values(DType::kF32, kAll, 1),
                   grad = random.values(DType::kF32, kAll, 1);
      Tensor v = random.values(DType::kF32, kAll, 1);
      for (double& x : v.v) x = std::abs(x);
      // Updates [0, cut) and [cut, kAll) apart.
      const auto updated = [&](std::int64_t cut) {
        ops::AdamW whole{backend.put(master), backend.put(m),
                         backend.put(v),      backend.put(grad),
                         backend.room(dtype, kAll, 1),
                         backend.put(tensor(DType::kF32, 1, 1, {0.7})),
                         0.01F,               0.9F,
                         0.95F,               1e-8F,
                         0.1F,                3};
        for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, kAll}}) {
          ops::AdamW part = whole;
          for (auto view : {&ops::AdamW::master, &ops::AdamW::m, &ops::AdamW::v, &ops::AdamW::grad,
                            &ops::AdamW::param})
            part.*view = (whole.*view).slice(begin, end - begin);
          backend.run(part);
        }
        std::vector<Tensor> all;
        for (const View& view : {whole.master, whole.m, whole.v, whole.param})
          all.push_back(backend.get(view));
        return all;
      };
      const std::vector<Tensor> expected = updated(kAll);
      for (const std::int64_t cut : {1, 5, 15, 16, 37, 64}) {
        const std::vector<Tensor> got = updated(cut);
        CAPTURE(cut, name_of(dtype));
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].v == expected[i].v);
      }
    }
  });
}

TEST_CASE("adamw") {
  on_every_backend([](auto& backend) {
    for (const std::int64_t n : {0, 1, 50, 9000})
      for (const DType dtype : kStorage) {
        CAPTURE(n, name_of(dtype));
        Random random(static_cast<std::uint64_t>(n));
        const Tensor master = random.values(DType::kF32, n, 1),
                     m = random.values(DType::kF32, n, 1);
        const Tensor grad = random.values(DType::kF32, n, 1);
        Tensor v = random.values(DType::kF32, n, 1);
        for (double& x : v.v) x = std::abs(x);
        ops::AdamW op{backend.put(master),
                      backend.put(m),
                      backend.put(v),
                      backend.put(grad),
                      backend.room(dtype, n, 1),
                      backend.put(tensor(DType::kF32, 1, 1, {0.5})),
                      0.01F,
                      0.9F,
                      0.95F,
                      1e-8F,
                      0.1F,
                      3};
        backend.run(op);
        Expected m1(grad.v.size()), v1(grad.v.size()), next(grad.v.size());
        const double b1 = op.beta1, b2 = op.beta2, lr = op.lr, decay = op.weight_decay;
        for (std::size_t i = 0; i < grad.v.size(); ++i) {
          const double g = 0.5 * grad.v[i];
          m1.add(i, b1 * m.v[i]);
          m1.add(i, (1 - b1) * g);
          v1.add(i, b2 * v.v[i]);
          v1.add(i, (1 - b2) * g * g);
          const double root_v = std::sqrt(v1.v[i] / (1 - b2 * b2 * b2)) + op.eps;
          const double correction = 1 - b1 * b1 * b1;
          next.add(i, master.v[i]);
          next.add(i, -lr * decay * master.v[i]);
          next.add(i, -lr * m1.v[i] / correction / root_v,
                   lr * m1.magnitude[i] / correction / root_v);
        }
        CHECK_CLOSE(backend.get(op.m), m1, 3);
        CHECK_CLOSE(backend.get(op.v), v1, 4);
        CHECK_CLOSE(backend.get(op.master), next, 8);
        const Tensor after = backend.get(op.master);
        CHECK(backend.get(op.param).v == tensor(dtype, n, 1, after.v).v);
      }
  });
}

}  // namespace
}  // namespace tandem::test
