// One rectangle of a matrix product, and how a product is cut into rectangles.
#pragma once

#include "panel.h"
#include "tandem/ops/ops.h"

namespace tandem::cpu {

// Computes rows [row, row + rows) and columns [col, col + cols) of op on the calling thread.
void gemm_tile(const ops::Gemm& op, Rect rect);

struct GemmSize {
  std::int64_t m, n, k;
};
GemmSize size_of(const ops::Gemm& op);  // checks the shapes

// The longer side of c is cut into a power of two of pieces, each worth a thread; the cut depends
// on the sizes alone.
class GemmCut {
 public:
  explicit GemmCut(GemmSize size);
  [[nodiscard]] std::int64_t pieces() const { return pieces_; }
  [[nodiscard]] Rect piece(std::int64_t index) const;

 private:
  GemmSize size_;
  bool by_rows_;
  std::int64_t length_;  // of one piece along the cut side
  std::int64_t pieces_;
};

}  // namespace tandem::cpu
