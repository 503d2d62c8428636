#include "matmul.h"

#include "split.h"
#include "transpose.h"

namespace tandem::cpu {
namespace {

// A kernel call keeps kRows x kVecs vectors of c in registers: sixteen of the 32 of AVX-512, twelve
// of the 16 of AVX2. Both cover the latency of two multiply-add units.
constexpr int kRows = kVecBytes == 64 ? 8 : 6;
constexpr int kVecs = 2;
constexpr std::int64_t kColumns = kVecs * kLanes;
constexpr std::int64_t kDepth = 512;  // of k at a time: the packed columns of b stay in cache

// op(a): element (i, l) at data[i * row_step + l * depth_step].
struct Operand {
  const float* data;
  std::int64_t row_step, depth_step;
};

// What becomes of a finished sum: c = alpha sum, or c += alpha sum.
struct Finish {
  float alpha;
  bool accumulate;
};

template <class Lanes>
void put(float* c, Vec sum, Finish finish, Lanes lanes) {
  Vec value = sum * finish.alpha;
  if (finish.accumulate) value += load(c, lanes);
  store(c, value, lanes);
}

// The last columns of c, apart so that the kernel itself stays small.
[[gnu::noinline]] void put_narrow(const Vec* sums, int rows, int vecs, Finish finish, Panel c,
                                  std::int64_t width) {
  for (int i = 0; i < rows; ++i)
    for_lanes(width, [&](std::int64_t j, auto lanes) {
      put(c.data + i * c.stride + j, sums[i * vecs + j / kLanes], finish, lanes);
    });
}

// Rows of c times `width` <= Vecs * kLanes columns; packed is [depth][Vecs * kLanes].
template <int Rows, int Vecs>
void kernel(Operand a, const float* packed, std::int64_t depth, Finish finish, Panel c,
            std::int64_t width) {
  Vec sums[Rows][Vecs] = {};
  for (std::int64_t l = 0; l < depth; ++l) {
    Vec b[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) b[v] = widen(packed + (l * Vecs + v) * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec x = splat(a.data[i * a.row_step + l * a.depth_step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sums[i][v] += x * b[v];
    }
  }
  if (width < Vecs * kLanes) {
    Vec rows[Rows * Vecs];
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Vecs; ++i) rows[i] = sums[i / Vecs][i % Vecs];
    return put_narrow(rows, Rows, Vecs, finish, c, width);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v)
      put(c.data + i * c.stride + v * kLanes, sums[i][v], finish, AllLanes{});
}

template <int Vecs>
void all_rows(Operand a, std::int64_t rows, const float* packed, std::int64_t depth, Finish finish,
              Panel c, std::int64_t width) {
  const auto step = [&]<int Rows>(std::integral_constant<int, Rows>) {
    for (; rows >= Rows; rows -= Rows) {
      kernel<Rows, Vecs>(a, packed, depth, finish, c, width);
      a.data += Rows * a.row_step;
      c.data += Rows * c.stride;
    }
  };
  step(std::integral_constant<int, kRows>{});
  step(std::integral_constant<int, 4>{});
  step(std::integral_constant<int, 2>{});
  step(std::integral_constant<int, 1>{});
}

// One vector of columns of b [depth, n], rows `to_step` floats apart in the packed form.
void pack_plain(Panel b, std::int64_t depth, std::int64_t width, float* to, std::int64_t to_step) {
  if (width >= kLanes) {
    for (std::int64_t l = 0; l < depth; ++l) narrow(to + l * to_step, widen(b.data + l * b.stride));
  } else {
    for (std::int64_t l = 0; l < depth; ++l)
      narrow(to + l * to_step, load(b.data + l * b.stride, static_cast<int>(width)));
  }
}

// The same of b [n, depth]: squares are transposed, columns that b lacks are zeros.
void pack_transposed(Panel b, std::int64_t depth, std::int64_t width, float* to,
                     std::int64_t to_step) {
  for_lanes(depth, [&](std::int64_t l, auto lanes) {
    Vec square[kLanes] = {};
    const float* from = b.data + l;
    if (width >= kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = load(from + i * b.stride, lanes);
    } else {
      for (int i = 0; i < width; ++i) square[i] = load(from + i * b.stride, lanes);
    }
    transpose(square);
    for (int i = 0; i < lanes; ++i) narrow(to + (l + i) * to_step, square[i]);
  });
}

struct PackedColumns;

}  // namespace

void matmul(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            Panel a, Panel b, bool accumulate, Panel c) {
  float* packed = scratch<PackedColumns>(kDepth * kColumns);
  const std::int64_t row_step = trans_a ? 1 : a.stride, depth_step = trans_a ? a.stride : 1;
  for (std::int64_t l = 0; l < k; l += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - l);
    const Operand left{a.data + l * depth_step, row_step, depth_step};
    const Finish finish{alpha, accumulate || l > 0};
    for (std::int64_t j = 0; j < n; j += kColumns) {
      const std::int64_t width = std::min(kColumns, n - j);
      const std::int64_t vecs = (width + kLanes - 1) / kLanes;
      for (std::int64_t v = 0; v < vecs; ++v) {
        const std::int64_t column = j + v * kLanes;
        const std::int64_t first = trans_b ? column * b.stride + l : l * b.stride + column;
        (trans_b ? pack_transposed : pack_plain)({b.data + first, b.stride}, depth, n - column,
                                                 packed + v * kLanes, vecs * kLanes);
      }
      const Panel out{c.data + j, c.stride};
      if (vecs == kVecs)
        all_rows<kVecs>(left, m, packed, depth, finish, out, width);
      else
        all_rows<1>(left, m, packed, depth, finish, out, width);
    }
  }
}

}  // namespace tandem::cpu
