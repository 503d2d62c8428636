// The ops of dense layers against float64: norms, rotary embedding, attention, SwiGLU, embedding
// and loss. Every reference gradient is first proved by central differences.
#include "reference_attention.h"

namespace tandem::test {
namespace {

Tensor fp32(const Values& v, std::int64_t rows, std::int64_t cols = 1) {
  return tensor(DType::kF32, rows, cols, v);
}

constexpr float kNormEps = 1e-5F;

template <class Backend>
void check_rms(Backend& backend, std::int64_t rows, std::int64_t n, DType dtype, bool with_add) {
  CAPTURE(rows, n, name_of(dtype), with_add);
  Random random(static_cast<std::uint64_t>(rows * 1000 + n));
  const Tensor x = random.values(dtype, rows, n), w = random.values(dtype, n, 1);
  const Tensor d_y = random.values(dtype, rows, n), add = random.values(dtype, rows, n);
  const Tensor d_w = random.values(DType::kF32, n, 1);
  const View vx = backend.put(x), vw = backend.put(w);
  const View y = backend.room(dtype, rows, n), rstd = backend.room(DType::kF32, rows, 1);
  backend.run(ops::RmsNormFwd{vx, vw, y, rstd, kNormEps});
  const Values exact_rstd = reference::rms_rstd(x.v, rows, n, kNormEps);
  CHECK_CLOSE(backend.get(rstd), by_size(exact_rstd), root(n) + 4);
  CHECK_CLOSE(backend.get(y), by_size(reference::rms_apply(x.v, w.v, exact_rstd, n)), root(n) + 6);

  const Tensor saved = fp32(exact_rstd, rows);
  const View again = backend.room(dtype, rows, n);
  backend.run(ops::RmsNormApply{vx, vw, backend.put(saved), again});
  CHECK_CLOSE(backend.get(again), by_size(reference::rms_apply(x.v, w.v, saved.v, n)), 2);

  reference::RmsGradient g = reference::rms_backward(d_y.v, x.v, w.v, saved.v, n);
  const View d_x = with_add ? backend.put(add) : backend.room(dtype, rows, n);
  const View vd_w = backend.put(d_w);
  backend.run(ops::RmsNormBwd{backend.put(d_y), vx, vw, backend.put(saved), with_add ? d_x : View{},
                              d_x, vd_w});
  for (std::size_t i = 0; with_add && i < add.v.size(); ++i) g.d_x.add(i, add.v[i]);
  for (std::size_t i = 0; i < d_w.v.size(); ++i) g.d_w.add(i, d_w.v[i]);
  CHECK_CLOSE(backend.get(d_x), g.d_x, root(n) + 8);
  CHECK_CLOSE(backend.get(vd_w), g.d_w, root(rows) + 4);
}

TEST_CASE("rms norm: the reference gradient") {
  Random random(1);
  const std::int64_t rows = 3, n = 5;
  const Values x = random.values(DType::kF32, rows, n).v, w = random.values(DType::kF32, n, 1).v;
  const Values d_y = random.values(DType::kF32, rows, n).v;
  const auto loss = [&](const Values& x_, const Values& w_) {
    return weighted_sum(reference::rms_apply(x_, w_, reference::rms_rstd(x_, rows, n, kNormEps), n),
                        d_y);
  };
  const auto g = reference::rms_backward(d_y, x, w, reference::rms_rstd(x, rows, n, kNormEps), n);
  check_gradient(
      x, [&](const Values& v) { return loss(v, w); }, g.d_x.v);
  check_gradient(
      w, [&](const Values& v) { return loss(x, v); }, g.d_w.v);
}

TEST_CASE("rms norm") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const bool with_add : {false, true}) {
        check_rms(backend, 0, 8, dtype, with_add);
        check_rms(backend, 1, 1, dtype, with_add);
        check_rms(backend, 7, 37, dtype, with_add);
        check_rms(backend, 201, 128, dtype, with_add);
      }
  });
}

// The reference of the QK norm is the RMS norm of each piece.
template <class Backend>
void check_qk_norm(Backend& backend, const ops::HeadShape& s, std::int64_t rows, bool full,
                   DType dtype) {
  CAPTURE(s.heads, s.kv_heads, s.head_dim, rows, full, name_of(dtype));
  Random random(static_cast<std::uint64_t>(rows + s.heads));
  const std::int64_t q = s.heads * s.head_dim, k = s.kv_heads * s.head_dim, cols = q + 2 * k;
  const std::int64_t q_piece = full ? q : s.head_dim, k_piece = full ? k : s.head_dim;
  const std::int64_t pieces = q / q_piece + k / k_piece;
  const Tensor x = random.values(dtype, rows, cols), d = random.values(dtype, rows, cols);
  const Tensor w_q = random.values(dtype, q_piece, 1), w_k = random.values(dtype, k_piece, 1);
  Expected y = by_size(x.v), d_x = by_size(d.v), d_w_q(w_q.v.size()), d_w_k(w_k.v.size());
  Values rstd, raw;
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t begin = 0; begin < q + k;) {
      const bool is_q = begin < q;
      const std::int64_t n = is_q ? q_piece : k_piece;
      const std::size_t first = reference::at(t, cols, begin);
      const auto cut = [&](const Values& v) {
        return Values(v.begin() + static_cast<std::ptrdiff_t>(first),
                      v.begin() + static_cast<std::ptrdiff_t>(first) + n);
      };
      const Values& w = is_q ? w_q.v : w_k.v;
      const Values piece = cut(x.v), r = fp32(reference::rms_rstd(piece, 1, n, kNormEps), 1).v;
      const Values normed = reference::rms_apply(piece, w, r, n);
      const auto g = reference::rms_backward(cut(d.v), piece, w, r, n);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        y.v[first + i] = normed[i];
        y.magnitude[first + i] = std::abs(normed[i]);
        d_x.v[first + i] = g.d_x.v[i];
        d_x.magnitude[first + i] = g.d_x.magnitude[i];
        (is_q ? d_w_q : d_w_k).add(i, g.d_w.v[i]);
      }
      rstd.push_back(r[0]);
      raw.insert(raw.end(), piece.begin(), piece.end());
      begin += n;
    }
  const View qkv = backend.put(x), vraw = backend.room(dtype, rows, q + k);
  const View vrstd = backend.room(DType::kF32, rows, pieces);
  const View vw_q = backend.put(w_q), vw_k = backend.put(w_k);
  backend.run(ops::QkNormFwd{qkv, vraw, vw_q, vw_k, vrstd, s, full, kNormEps});
  CHECK_CLOSE(backend.get(qkv), y, root(q) + 8);
  CHECK(backend.get(vraw).v == raw);
  CHECK_CLOSE(backend.get(vrstd), by_size(rstd), root(q) + 4);

  const View d_qkv = backend.put(d), vd_w_q = backend.put(fp32({}, q_piece));
  const View vd_w_k = backend.put(fp32({}, k_piece));
  backend.run(ops::QkNormBwd{d_qkv, vraw, vw_q, vw_k, backend.put(fp32(rstd, rows, pieces)), vd_w_q,
                             vd_w_k, s, full});
  CHECK_CLOSE(backend.get(d_qkv), d_x, root(q) + 8);
  CHECK_CLOSE(backend.get(vd_w_q), d_w_q, root(rows * s.heads) + 4);
  CHECK_CLOSE(backend.get(vd_w_k), d_w_k, root(rows * s.heads) + 4);
}

constexpr ops::HeadShape kShapes[] = {
    {.heads = 1, .kv_heads = 1, .head_dim = 2, .seq_len = 1},
    {.heads = 4, .kv_heads = 2, .head_dim = 6, .seq_len = 5},
    {.heads = 3, .kv_heads = 3, .head_dim = 16, .seq_len = 33},
    {.heads = 6, .kv_heads = 1, .head_dim = 34, .seq_len = 70},
    {.heads = 2, .kv_heads = 1, .head_dim = 8, .seq_len = 131},
    {.heads = 4, .kv_heads = 1, .head_dim = 64, .seq_len = 128},
    {.heads = 2, .kv_heads = 2, .head_dim = 128, .seq_len = 200},
};

TEST_CASE("qk norm") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const bool full : {false, true})
        for (const ops::HeadShape& s : kShapes)
          for (const std::int64_t sequences : {0, 2})
            check_qk_norm(backend, s, sequences * s.seq_len, full, dtype);
    // More tokens than a GPU's grid has room for in any but its first dimension.
    const ops::HeadShape narrow{.heads = 1, .kv_heads = 1, .head_dim = 2, .seq_len = 1000};
    for (const bool full : {false, true})
      check_qk_norm(backend, narrow, 66 * narrow.seq_len, full, DType::kF32);
  });
}

TEST_CASE("rope") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const bool inverse : {false, true})
        for (const ops::HeadShape& s : kShapes)
          for (const std::int64_t sequences : {0, 1, 3}) {
            CAPTURE(name_of(dtype), inverse, s.heads, s.head_dim, s.seq_len, sequences);
            Random random(3);
            const std::int64_t rows = sequences * s.seq_len;
            const Tensor x = random.values(dtype, rows, (s.heads + 2 * s.kv_heads) * s.head_dim);
            const View qkv = backend.put(x);
            backend.run(ops::Rope{qkv, s, 10000.0, inverse});
            CHECK_CLOSE(backend.get(qkv), reference::rope(x.v, rows, s, 10000.0, inverse), 2);
          }
  });
}

TEST_CASE("attention: the reference gradient") {
  const ops::HeadShape s{.heads = 4, .kv_heads = 2, .head_dim = 3, .seq_len = 4};
  const std::int64_t rows = 8;
  Random random(11);
  const Values qkv = random.values(DType::kF32, rows, 24).v;
  const Values d_out = random.values(DType::kF32, rows, 12).v;
  const auto forward = reference::attention(qkv, rows, s);
  check_gradient(
      qkv,
      [&](const Values& v) { return weighted_sum(reference::attention(v, rows, s).out.v, d_out); },
      reference::attention_backward(qkv, forward.out.v, forward.lse, d_out, rows, s).v);
}

template <class Backend>
void check_attention(Backend& backend, const ops::HeadShape& s, std::int64_t sequences,
                     DType dtype) {
  CAPTURE(s.heads, s.kv_heads, s.head_dim, s.seq_len, sequences, name_of(dtype));
  Random random(static_cast<std::uint64_t>(s.seq_len * 10 + s.heads));
  const std::int64_t rows = sequences * s.seq_len, width = s.heads * s.head_dim;
  const Tensor qkv = random.values(dtype, rows, (s.heads + 2 * s.kv_heads) * s.head_dim, 2);
  const Tensor d_out = random.values(dtype, rows, width);
  const auto expected = reference::attention(qkv.v, rows, s);
  // A score is off by eps (sqrt(head_dim) + 2) of its terms, and so is e^score, relatively.
  const double factor = 2 * expected.largest_score * (root(s.head_dim) + 2) + root(s.seq_len) + 8;
  const View out = backend.room(dtype, rows, width);
  const View lse = backend.room(DType::kF32, rows, s.heads);
  const View vqkv = backend.put(qkv);
  backend.run(ops::AttentionFwd{vqkv, out, lse, s});
  CHECK_CLOSE(backend.get(out), expected.out, factor + backend.attention_rounding(dtype));
  Expected exact_lse(expected.lse.size());
  for (std::size_t i = 0; i < expected.lse.size(); ++i)
    exact_lse.add(i, expected.lse[i], 1 + std::abs(expected.lse[i]));
  CHECK_CLOSE(backend.get(lse), exact_lse, factor);

  const Tensor saved = tensor(dtype, rows, width, expected.out.v);
  const Tensor saved_lse = fp32(expected.lse, rows, s.heads);
  const View d_qkv = backend.room(dtype, rows, qkv.cols);
  backend.run(ops::AttentionBwd{vqkv, backend.put(saved), backend.put(saved_lse),
                                backend.put(d_out), d_qkv, s});
  CHECK_CLOSE(backend.get(d_qkv),
              reference::attention_backward(qkv.v, saved.v, saved_lse.v, d_out.v, rows, s),
              factor + root(s.seq_len * s.heads) + 3 * backend.attention_rounding(dtype));
}

TEST_CASE("attention") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const ops::HeadShape& s : kShapes)
        for (const std::int64_t sequences : {0, 1, 2})
          check_attention(backend, s, sequences, dtype);
  });
}

TEST_CASE("swiglu: the reference gradient") {
  Random random(2);
  const std::int64_t rows = 3, n = 4;
  const Values x = random.values(DType::kF32, rows, 2 * n, 3).v;
  const Values w = random.values(DType::kF32, rows, 1).v, d = random.values(DType::kF32, rows, n).v;
  const auto loss = [&](const Values& x_, const Values& w_) {
    return weighted_sum(reference::swiglu(x_, w_, rows, n).v, d);
  };
  const auto g = reference::swiglu_backward(d, x, w, rows, n);
  check_gradient(
      x, [&](const Values& v) { return loss(v, w); }, g.d_gate_up.v);
  check_gradient(
      w, [&](const Values& v) { return loss(x, v); }, g.d_weights.v);
}

TEST_CASE("swiglu") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const bool weighted : {false, true})
        for (const auto& [rows, n] : {std::pair{0, 4}, {1, 1}, {5, 33}, {300, 48}}) {
          CAPTURE(name_of(dtype), weighted, rows, n);
          Random random(static_cast<std::uint64_t>(rows));
          const Tensor x = random.values(dtype, rows, 2 * n, 8), d = random.values(dtype, rows, n);
          Tensor w = random.values(DType::kF32, rows, 1);
          if (!weighted) std::fill(w.v.begin(), w.v.end(), 1.0);
          const View weights = weighted ? backend.put(w) : View{};
          const View act = backend.room(dtype, rows, n), again = backend.room(dtype, rows, n);
          const View d_x = backend.room(dtype, rows, 2 * n), vx = backend.put(x);
          const View d_w = weighted ? backend.room(DType::kF32, rows, 1) : View{};
          backend.run(ops::SwiGluFwd{vx, weights, act});
          backend.run(ops::SwiGluBwd{backend.put(d), vx, weights, d_x, again, d_w});
          const Expected expected = reference::swiglu(x.v, w.v, rows, n);
          const auto g = reference::swiglu_backward(d.v, x.v, w.v, rows, n);
          CHECK_CLOSE(backend.get(act), expected, 6);
          CHECK_CLOSE(backend.get(again), expected, 6);
          CHECK_CLOSE(backend.get(d_x), g.d_gate_up, 10);
          if (weighted) CHECK_CLOSE(backend.get(d_w), g.d_weights, root(n) + 6);
        }
  });
}

TEST_CASE("embedding") {
  on_every_backend([](auto& backend) {
    for (const DType dtype : kStorage)
      for (const auto& [tokens, n] : {std::pair{0, 4}, {1, 1}, {40, 33}, {300, 200}}) {
        CAPTURE(name_of(dtype), tokens, n);
        const std::int64_t vocab = 11;
        Random random(4);
        const Tensor table = random.values(dtype, vocab, n), d = random.values(dtype, tokens, n);
        Tensor ids = tensor(DType::kI32, tokens, 1);
        for (double& id : ids.v) id = static_cast<double>(random.below(vocab));
        const View out = backend.room(dtype, tokens, n), d_table = backend.put(fp32({}, vocab, n));
        backend.run(ops::EmbeddingFwd{backend.put(ids), backend.put(table), out});
        backend.run(ops::EmbeddingBwd{backend.put(ids), backend.put(d), d_table});
        Values rows;
        Expected gradient(table.v.size());
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t i = 0; i < n; ++i) {
            const auto id = static_cast<std::int64_t>(ids.v[reference::at(t, 1, 0)]);
            rows.push_back(table.v[reference::at(id, n, i)]);
            gradient.add(reference::at(id, n, i), d.v[reference::at(t, n, i)]);
          }
        CHECK(backend.get(out).v == rows);
        CHECK_CLOSE(backend.get(d_table), gradient, root(tokens) + 1);
      }
  });
}

TEST_CASE("cross entropy: the reference gradient") {
  Random random(6);
  const Values x = random.values(DType::kF32, 3, 5, 3).v, labels{4, 0, 2};
  const auto loss = [&](const Values& v) {
    return weighted_sum(reference::cross_entropy(v, labels, 5, 0.5).loss, {0.5, 0.5, 0.5});
  };
  check_gradient(x, loss, reference::cross_entropy(x, labels, 5, 0.5).d_logits.v);
}

TEST_CASE("cross entropy") {
  enum Gradient { kNone, kInPlace, kBF16, kF16 };
  on_every_backend([](auto& backend) {
    for (const Gradient gradient : {kNone, kInPlace, kBF16, kF16})
      for (const auto& [rows, n] : {std::pair{0, 4}, {1, 1}, {3, 37}, {90, 256}, {5, 4099}}) {
        CAPTURE(gradient, rows, n);
        const double range = 10;
        Random random(8);
        const Tensor x = random.values(DType::kF32, rows, n, range);
        Tensor labels = tensor(DType::kI32, rows, 1);
        for (double& label : labels.v) label = static_cast<double>(random.below(n));
        const View logits = backend.put(x), loss = backend.room(DType::kF32, rows, 1);
        View d_logits;
        if (gradient == kInPlace) d_logits = logits;
        if (gradient == kBF16) d_logits = backend.room(DType::kBF16, rows, n);
        if (gradient == kF16) d_logits = backend.room(DType::kF16, rows, n);
        backend.run(ops::CrossEntropy{logits, backend.put(labels), loss, d_logits, 0.25F});
        const auto expected = reference::cross_entropy(x.v, labels.v, n, 0.25);
        Expected exact_loss(expected.loss.size());
        for (std::size_t t = 0; t < expected.loss.size(); ++t)
          exact_loss.add(t, expected.loss[t], 1 + 2 * range);
        CHECK_CLOSE(backend.get(loss), exact_loss, root(n) + 4);
        if (gradient != kNone)
          CHECK_CLOSE(backend.get(d_logits), expected.d_logits, 2 * range + root(n) + 4);
        if (gradient != kInPlace) CHECK(backend.get(logits).v == x.v);
      }
  });
}

}  // namespace
}  // namespace tandem::test
