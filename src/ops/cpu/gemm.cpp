#include "gemm_tile.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

// 16-bit operands are widened block by block: at most 256 x 256 of c and 512 of the inner dimension
// keep the three blocks within a second-level cache.
constexpr std::int64_t kSide = 256, kInner = 512;

struct Blocks;

void widened_block(const ops::Gemm& op, Rect rect, std::int64_t inner) {
  float* a_block = scratch<Blocks>((kSide + kSide) * kInner + kSide * kSide);
  float* b_block = a_block + kSide * kInner;
  float* c_block = b_block + kSide * kInner;
  const Panel c = write_panel(op.c, rect, c_block);
  for (std::int64_t k = 0; k < inner; k += kInner) {
    const std::int64_t depth = std::min(kInner, inner - k);
    const Rect a =
        op.trans_a ? Rect{k, rect.row, depth, rect.rows} : Rect{rect.row, k, rect.rows, depth};
    const Rect b =
        op.trans_b ? Rect{rect.col, k, rect.cols, depth} : Rect{k, rect.col, depth, rect.cols};
    sgemm(op.trans_a, op.trans_b, rect.rows, rect.cols, depth, 1, read_panel(op.a, a, a_block),
          read_panel(op.b, b, b_block), op.accumulate || k > 0, c);
  }
  finish_panel(op.c, rect, c);
}

}  // namespace

void gemm_tile(const ops::Gemm& op, Rect rect) {
  const std::int64_t inner = op.trans_a ? op.a.rows : op.a.cols;
  const bool all_fp32 =
      op.a.dtype == DType::kF32 && op.b.dtype == DType::kF32 && op.c.dtype == DType::kF32;
  if (all_fp32 || inner == 0) {
    const Rect a =
        op.trans_a ? Rect{0, rect.row, inner, rect.rows} : Rect{rect.row, 0, rect.rows, inner};
    const Rect b =
        op.trans_b ? Rect{rect.col, 0, rect.cols, inner} : Rect{0, rect.col, inner, rect.cols};
    float* spare = inner == 0 ? scratch<Blocks>(rect.size()) : nullptr;
    const Panel c = write_panel(op.c, rect, spare);
    sgemm(op.trans_a, op.trans_b, rect.rows, rect.cols, inner, 1, read_panel(op.a, a, nullptr),
          read_panel(op.b, b, nullptr), op.accumulate, c);
    return finish_panel(op.c, rect, c);
  }
  for (std::int64_t i = 0; i < rect.rows; i += kSide)
    for (std::int64_t j = 0; j < rect.cols; j += kSide)
      widened_block(op,
                    {rect.row + i, rect.col + j, std::min(kSide, rect.rows - i),
                     std::min(kSide, rect.cols - j)},
                    inner);
}

GemmSize size_of(const ops::Gemm& op) {
  const GemmSize size{op.trans_a ? op.a.cols : op.a.rows, op.trans_b ? op.b.rows : op.b.cols,
                      op.trans_a ? op.a.rows : op.a.cols};
  TANDEM_CHECK(op.c.rows == size.m, "gemm: rows of c");
  TANDEM_CHECK(op.c.cols == size.n, "gemm: columns of c");
  TANDEM_CHECK((op.trans_b ? op.b.cols : op.b.rows) == size.k, "gemm: inner dimension of b");
  if (op.accumulate) TANDEM_CHECK(op.c.dtype == DType::kF32, "gemm: accumulates in fp32");
  return size;
}

GemmCut::GemmCut(GemmSize size) : size_(size), by_rows_(size.m >= size.n) {
  constexpr std::int64_t kPieceFlops = 2'000'000, kShortest = 64, kRound = 16, kMost = 64;
  const std::int64_t side = by_rows_ ? size.m : size.n;
  const std::int64_t flops = 2 * size.m * size.n * size.k;
  const std::int64_t wanted = std::min({flops / kPieceFlops, side / kShortest, kMost});
  std::int64_t pieces = 1;
  while (pieces * 2 <= wanted) pieces *= 2;
  length_ = ((side + pieces - 1) / pieces + kRound - 1) / kRound * kRound;
  pieces_ = size.m == 0 || size.n == 0 ? 0 : (side + length_ - 1) / length_;
}

Rect GemmCut::piece(std::int64_t index) const {
  const std::int64_t begin = index * length_;
  if (by_rows_) return {begin, 0, std::min(length_, size_.m - begin), size_.n};
  return {0, begin, size_.m, std::min(length_, size_.n - begin)};
}

void run(const ops::Gemm& op, Workers& workers) {
  const GemmCut cut(size_of(op));
  for_each_piece(workers, cut.pieces(), [&](std::int64_t i) { gemm_tile(op, cut.piece(i)); });
}

}  // namespace tandem::cpu
