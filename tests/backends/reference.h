// The ops in plain float64 loops, with magnitudes for error bounds. Slow and obvious on purpose.
#pragma once

#include "compare.h"
#include "tandem/ops/ops.h"

namespace tandem::test::reference {

using Index = std::int64_t;
inline std::size_t at(Index row, Index cols, Index col) {
  return static_cast<std::size_t>(row * cols + col);
}

// c = op(a) op(b); a and b hold m k and k n values.
inline Expected gemm(const Values& a, const Values& b, Index m, Index n, Index k, bool trans_a,
                     bool trans_b) {
  Expected c(static_cast<std::size_t>(m * n));
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index l = 0; l < k; ++l)
        c.add(at(i, n, j), (trans_a ? a[at(l, m, i)] : a[at(i, k, l)]) *
                               (trans_b ? b[at(j, k, l)] : b[at(l, n, j)]));
  return c;
}

inline Values rms_rstd(const Values& x, Index rows, Index n, double eps) {
  Values rstd(static_cast<std::size_t>(rows));
  for (Index t = 0; t < rows; ++t) {
    double total = 0;
    for (Index i = 0; i < n; ++i) total += x[at(t, n, i)] * x[at(t, n, i)];
    rstd[at(t, 1, 0)] = 1 / std::sqrt(total / static_cast<double>(n) + eps);
  }
  return rstd;
}

inline Values rms_apply(const Values& x, const Values& w, const Values& rstd, Index n) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * w[i % static_cast<std::size_t>(n)] * rstd[i / static_cast<std::size_t>(n)];
  return y;
}

struct RmsGradient {
  Expected d_x, d_w;
};

inline RmsGradient rms_backward(const Values& d_y, const Values& x, const Values& w,
                                const Values& rstd, Index n) {
  const auto width = static_cast<std::size_t>(n);
  RmsGradient g{Expected(x.size()), Expected(width)};
  for (std::size_t t = 0; t < rstd.size(); ++t) {
    double mean = 0, mean_size = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double term = d_y[t * width + i] * w[i] * x[t * width + i] / static_cast<double>(n);
      mean += term;
      mean_size += std::abs(term);
      g.d_w.add(i, d_y[t * width + i] * x[t * width + i] * rstd[t]);
    }
    for (std::size_t i = t * width; i < (t + 1) * width; ++i) {
      const double cube = rstd[t] * rstd[t] * rstd[t];
      g.d_x.add(i, rstd[t] * d_y[i] * w[i % width]);
      g.d_x.add(i, -cube * x[i] * mean, std::abs(cube * x[i]) * mean_size);
    }
  }
  return g;
}

// Rotates the q and k columns of rows of `cols` columns.
inline Expected rope(const Values& qkv, Index rows, const ops::HeadShape& s, double theta,
                     bool inverse) {
  const Index cols = (s.heads + 2 * s.kv_heads) * s.head_dim, half = s.head_dim / 2;
  Expected out = by_size(qkv);
  for (Index t = 0; t < rows; ++t)
    for (Index h = 0; h < s.heads + s.kv_heads; ++h)
      for (Index j = 0; j < half; ++j) {
        const double rate =
            std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(s.head_dim));
        const double angle = static_cast<double>(t % s.seq_len) * rate * (inverse ? -1 : 1);
        const std::size_t a = at(t, cols, h * s.head_dim + j),
                          b = a + static_cast<std::size_t>(half);
        out.v[a] = qkv[a] * std::cos(angle) - qkv[b] * std::sin(angle);
        out.v[b] = qkv[b] * std::cos(angle) + qkv[a] * std::sin(angle);
        out.magnitude[a] = out.magnitude[b] = std::abs(qkv[a]) + std::abs(qkv[b]);
      }
  return out;
}

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}

inline Expected swiglu(const Values& gate_up, const Values& weights, Index rows, Index n) {
  Expected act(static_cast<std::size_t>(rows * n));
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < n; ++i)
      act.add(at(r, n, i),
              silu(gate_up[at(r, 2 * n, i)]) * gate_up[at(r, 2 * n, n + i)] * weights[at(r, 1, 0)]);
  return act;
}

struct SwiGluGradient {
  Expected d_gate_up, d_weights;
};

inline SwiGluGradient swiglu_backward(const Values& d_act, const Values& gate_up,
                                      const Values& weights, Index rows, Index n) {
  SwiGluGradient g{Expected(gate_up.size()), Expected(weights.size())};
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < n; ++i) {
      const double gate = gate_up[at(r, 2 * n, i)], up = gate_up[at(r, 2 * n, n + i)];
      const double d = d_act[at(r, n, i)], w = weights[at(r, 1, 0)];
      const double s = 1 / (1 + std::exp(-gate));
      g.d_gate_up.add(at(r, 2 * n, i), d * w * up * s);
      g.d_gate_up.add(at(r, 2 * n, i), d * w * up * silu(gate) * (1 - s));
      g.d_gate_up.add(at(r, 2 * n, n + i), d * w * silu(gate));
      g.d_weights.add(at(r, 1, 0), d * silu(gate) * up);
    }
  return g;
}

// log(sum e^x) of a row.
inline double log_sum_exp(const double* x, Index n) {
  const double largest = *std::max_element(x, x + n);
  double total = 0;
  for (Index i = 0; i < n; ++i) total += std::exp(x[i] - largest);
  return largest + std::log(total);
}

struct CrossEntropy {
  Values loss;
  Expected d_logits;
};

inline CrossEntropy cross_entropy(const Values& logits, const Values& labels, Index n,
                                  double scale) {
  CrossEntropy out{Values(labels.size()), Expected(logits.size())};
  for (Index t = 0; t < static_cast<Index>(labels.size()); ++t) {
    const auto label = static_cast<Index>(labels[at(t, 1, 0)]);
    const double lse = log_sum_exp(&logits[at(t, n, 0)], n);
    out.loss[at(t, 1, 0)] = lse - logits[at(t, n, label)];
    for (Index i = 0; i < n; ++i)
      out.d_logits.add(at(t, n, i), scale * std::exp(logits[at(t, n, i)] - lse));
    out.d_logits.add(at(t, n, label), -scale);
  }
  return out;
}

}  // namespace tandem::test::reference
