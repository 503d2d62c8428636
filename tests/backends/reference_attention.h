// Causal grouped-query attention in plain float64 loops.
#pragma once

#include "reference.h"

namespace tandem::test::reference {

struct Attention {
  Expected out;
  Values lse;
  double largest_score = 0;  // sum of |q k| times the scale, over all pairs: bounds a score's error
};

// Column of the first element of the head's q, and of the k and v it shares.
struct Columns {
  Index q, k, v, width;
  Columns(const ops::HeadShape& s, Index head)
      : q(head * s.head_dim),
        k((s.heads + head / (s.heads / s.kv_heads)) * s.head_dim),
        v(k + s.kv_heads * s.head_dim),
        width((s.heads + 2 * s.kv_heads) * s.head_dim) {}
};

inline double score_of(const Values& qkv, const ops::HeadShape& s, const Columns& c, Index i,
                       Index j, double* size = nullptr) {
  double dot = 0, total_size = 0;
  for (Index d = 0; d < s.head_dim; ++d) {
    const double term = qkv[at(i, c.width, c.q + d)] * qkv[at(j, c.width, c.k + d)];
    dot += term;
    total_size += std::abs(term);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  if (size != nullptr) *size = std::max(*size, total_size * scale);
  return dot * scale;
}

inline Attention attention(const Values& qkv, Index rows, const ops::HeadShape& s) {
  const Index out_width = s.heads * s.head_dim;
  Attention result{Expected(static_cast<std::size_t>(rows * out_width)),
                   Values(static_cast<std::size_t>(rows * s.heads)), 0};
  for (Index i = 0; i < rows; ++i)
    for (Index h = 0; h < s.heads; ++h) {
      const Columns c(s, h);
      const Index first = i / s.seq_len * s.seq_len;
      Values score;
      for (Index j = first; j <= i; ++j)
        score.push_back(score_of(qkv, s, c, i, j, &result.largest_score));
      const double lse = log_sum_exp(score.data(), static_cast<Index>(score.size()));
      result.lse[at(i, s.heads, h)] = lse;
      for (Index j = first; j <= i; ++j)
        for (Index d = 0; d < s.head_dim; ++d)
          result.out.add(at(i, out_width, h * s.head_dim + d),
                         std::exp(score[at(j - first, 1, 0)] - lse) * qkv[at(j, c.width, c.v + d)]);
    }
  return result;
}

// d_qkv from the saved out and lse.
inline Expected attention_backward(const Values& qkv, const Values& out, const Values& lse,
                                   const Values& d_out, Index rows, const ops::HeadShape& s) {
  const Index out_width = s.heads * s.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  Expected d_qkv(qkv.size());
  for (Index i = 0; i < rows; ++i)
    for (Index h = 0; h < s.heads; ++h) {
      const Columns c(s, h);
      const std::size_t o = at(i, out_width, h * s.head_dim);
      Expected delta(1);
      for (Index d = 0; d < s.head_dim; ++d)
        delta.add(0, out[o + static_cast<std::size_t>(d)] * d_out[o + static_cast<std::size_t>(d)]);
      for (Index j = i / s.seq_len * s.seq_len; j <= i; ++j) {
        const double p = std::exp(score_of(qkv, s, c, i, j) - lse[at(i, s.heads, h)]);
        Expected d_p(1);
        for (Index d = 0; d < s.head_dim; ++d) {
          const double g = d_out[o + static_cast<std::size_t>(d)];
          d_p.add(0, g * qkv[at(j, c.width, c.v + d)]);
          d_qkv.add(at(j, c.width, c.v + d), p * g);
        }
        const double d_s = scale * p * (d_p.v[0] - delta.v[0]);
        const double size = scale * p * (d_p.magnitude[0] + delta.magnitude[0]);
        for (Index d = 0; d < s.head_dim; ++d) {
          const double q = qkv[at(i, c.width, c.q + d)], k = qkv[at(j, c.width, c.k + d)];
          d_qkv.add(at(i, c.width, c.q + d), d_s * k, size * std::abs(k));
          d_qkv.add(at(j, c.width, c.k + d), d_s * q, size * std::abs(q));
        }
      }
    }
  return d_qkv;
}

}  // namespace tandem::test::reference
