// RMS normalisation of one row, shared by RMSNorm and the QK norm. The weight gradient of many
// rows is summed in blocks of rows, in order.
#pragma once

#include "simd.h"
#include "split.h"

namespace tandem::cpu {

template <class T>
float inverse_rms(const T* x, std::int64_t n, float eps) {
  Vec total{};
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    const Vec v = load(x + i, lanes);
    total += v * v;
  });
  return 1.0F / std::sqrt(sum(total) / static_cast<float>(n) + eps);
}

// y = x rstd w; y may be x.
template <class T>
void apply_norm(const T* x, const T* w, float rstd, T* y, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    store(y + i, load(x + i, lanes) * rstd * load(w + i, lanes), lanes);
  });
}

// d_x = rstd (d_y w - x rstd^2 mean(d_y w x)) (+ add); d_w += d_y x rstd. d_x may be d_y or add.
template <class T>
void norm_backward(const T* d_y, const T* x, const T* w, float rstd, const T* add, T* d_x,
                   float* d_w, std::int64_t n) {
  Vec total{};
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    const Vec product = load(d_y + i, lanes) * load(x + i, lanes);
    total += product * load(w + i, lanes);
    store(d_w + i, load(d_w + i, lanes) + product * rstd, lanes);
  });
  const float pull = sum(total) / static_cast<float>(n) * rstd * rstd;
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    const Vec g = load(d_y + i, lanes) * load(w + i, lanes);
    Vec d = (g - load(x + i, lanes) * pull) * rstd;
    if (add != nullptr) d += load(add + i, lanes);
    store(d_x + i, d, lanes);
  });
}

// The blocks of rows whose weight gradients are summed apart: at most 64, of at least 32 rows.
struct RowBlocks {
  std::int64_t rows, length, count;
  explicit RowBlocks(std::int64_t all_rows) : rows(all_rows) {
    length = std::max<std::int64_t>(32, (rows + 63) / 64);
    count = (rows + length - 1) / length;
  }
};

struct RowBlockSums;

// body(row, partial) for every row, where partial [width] is the block's sum; to += all partials.
template <class Body>
void sum_over_rows(Workers& workers, std::int64_t rows, std::int64_t width, float* to,
                   const Body& body) {
  const RowBlocks blocks(rows);
  float* partials = scratch<RowBlockSums>(blocks.count * width);
  for_rows(workers, blocks.count, blocks.length * width, [&](std::int64_t block) {
    float* partial = partials + block * width;
    std::fill_n(partial, width, 0.0F);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.length);
    for (std::int64_t row = block * blocks.length; row < end; ++row) body(row, partial);
  });
  for (std::int64_t block = 0; block < blocks.count; ++block)
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      store(to + i, load(to + i, lanes) + load(partials + block * width + i, lanes), lanes);
    });
}

}  // namespace tandem::cpu
