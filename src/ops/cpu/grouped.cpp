// Products with one weight matrix per expert. Experts may have no rows, or one.
#include "gemm_tile.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

struct Tile {
  std::int64_t expert;
  Rect rect;
};
struct Tiles;

// The row ranges of the experts, checked.
class Groups {
 public:
  Groups(const View& offsets, std::int64_t rows) : offset_(offsets.as<std::int32_t>()) {
    TANDEM_CHECK(offsets.dtype == DType::kI32, "grouped gemm: dtype of offsets");
    TANDEM_CHECK(offsets.size() >= 1, "grouped gemm: offsets has experts + 1 entries");
    experts_ = offsets.size() - 1;
    TANDEM_CHECK(offset_[0] >= 0, "grouped gemm: first offset");
    for (std::int64_t e = 0; e < experts_; ++e)
      TANDEM_CHECK(offset_[e] <= offset_[e + 1], "grouped gemm: offsets of expert {}", e);
    TANDEM_CHECK(offset_[experts_] <= rows, "grouped gemm: offsets end behind the rows");
  }
  [[nodiscard]] std::int64_t experts() const { return experts_; }
  [[nodiscard]] std::int64_t begin(std::int64_t e) const { return offset_[e]; }
  [[nodiscard]] std::int64_t rows(std::int64_t e) const { return offset_[e + 1] - offset_[e]; }

 private:
  const std::int32_t* offset_;
  std::int64_t experts_ = 0;
};

// The product of one expert as a plain Gemm.
ops::Gemm expert_gemm(const ops::GroupedGemm& op, const Groups& groups, std::int64_t e) {
  const std::int64_t w_rows = op.w.rows / groups.experts();
  return {.a = op.x.slice(groups.begin(e), groups.rows(e)),
          .b = op.w.slice(e * w_rows, w_rows),
          .c = op.y.slice(groups.begin(e), groups.rows(e)),
          .trans_b = op.trans_w};
}

ops::Gemm expert_gemm(const ops::GroupedGemmWeight& op, const Groups& groups, std::int64_t e) {
  const std::int64_t w_rows = op.d_w.rows / groups.experts();
  return {.a = op.d_y.slice(groups.begin(e), groups.rows(e)),
          .b = op.x.slice(groups.begin(e), groups.rows(e)),
          .c = op.d_w.slice(e * w_rows, w_rows),
          .trans_a = true,
          .accumulate = op.accumulate};
}

// run_groups leaves out experts without rows, so what they store is written here.
void zero_idle_experts(const ops::GroupedGemmWeight& op, const Groups& groups, Workers& workers) {
  const std::int64_t w_size = op.d_w.size() / groups.experts();
  for (std::int64_t e = 0; e < groups.experts(); ++e) {
    if (groups.rows(e) > 0) continue;
    float* d_w = op.d_w.as<float>() + e * w_size;
    for_blocks(workers, w_size, [&](std::int64_t begin, std::int64_t end) {
      std::fill(d_w + begin, d_w + end, 0.0F);
    });
  }
}

// All experts' first pieces, then all second pieces, and so on: contiguous shares of the list
// then hold a similar mix of busy and idle experts.
template <class Op>
void run_groups(const Op& op, const Groups& groups, Workers& workers) {
  constexpr std::int64_t kMostPieces = 64;
  const std::int64_t experts = groups.experts();
  Tile* tiles = scratch<Tiles, Tile>(experts * kMostPieces);
  std::int64_t count = 0;
  bool more = true;
  for (std::int64_t piece = 0; more; ++piece) {
    more = false;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (groups.rows(e) == 0) continue;
      const GemmCut cut(size_of(expert_gemm(op, groups, e)));
      if (piece < cut.pieces()) tiles[count++] = {e, cut.piece(piece)};
      more |= piece + 1 < cut.pieces();
    }
  }
  for_each_piece(workers, count, [&](std::int64_t i) {
    gemm_tile(expert_gemm(op, groups, tiles[i].expert), tiles[i].rect);
  });
}

}  // namespace

void run(const ops::GroupedGemm& op, Workers& workers) {
  TANDEM_CHECK(op.x.rows == op.y.rows, "grouped gemm: rows of x and y");
  const Groups groups(op.offsets, op.x.rows);
  if (groups.experts() == 0) return;
  TANDEM_CHECK(op.w.rows % groups.experts() == 0, "grouped gemm: rows of w per expert");
  run_groups(op, groups, workers);
}

void run(const ops::GroupedGemmWeight& op, Workers& workers) {
  TANDEM_CHECK(op.x.rows == op.d_y.rows, "grouped weight gemm: rows of x and d_y");
  const Groups groups(op.offsets, op.x.rows);
  if (groups.experts() == 0) return;
  TANDEM_CHECK(op.d_w.rows % groups.experts() == 0, "grouped weight gemm: rows of d_w per expert");
  TANDEM_CHECK(op.d_w.dtype == DType::kF32, "grouped weight gemm: dtype of d_w");
  if (!op.accumulate) zero_idle_experts(op, groups, workers);
  run_groups(op, groups, workers);
}

}  // namespace tandem::cpu
