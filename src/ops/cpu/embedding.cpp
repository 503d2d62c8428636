#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {

void run(const ops::EmbeddingFwd& op, Workers& workers) {
  const std::int64_t n = op.table.cols;
  expect(op.out, op.table.dtype, op.ids.size(), n, "embedding: out");
  check_ids(op.ids, op.table.rows, "token ids");
  with_element(op.table, "embedding: table", [&]<class T>(Tag<T>) {
    for_rows(workers, op.ids.size(), n, [&](std::int64_t t) {
      std::copy_n(op.table.as<T>() + op.ids.as<std::int32_t>()[t] * n, n, op.out.as<T>() + t * n);
    });
  });
}

// Split by columns: every element of the table then receives its tokens in order.
void run(const ops::EmbeddingBwd& op, Workers& workers) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t n = op.d_table.cols, tokens = op.ids.size();
  expect(op.d_table, DType::kF32, op.d_table.rows, n, "embedding backward: d_table");
  expect(op.d_out, op.d_out.dtype, tokens, n, "embedding backward: d_out");
  check_ids(op.ids, op.d_table.rows, "token ids");
  with_element(op.d_out, "embedding backward: d_out", [&]<class T>(Tag<T>) {
    for_rows(workers, (n + kColumns - 1) / kColumns, 2 * tokens * kColumns,
             [&](std::int64_t block) {
               const std::int64_t begin = block * kColumns, width = std::min(kColumns, n - begin);
               for (std::int64_t t = 0; t < tokens; ++t) {
                 float* to = op.d_table.as<float>() + op.ids.as<std::int32_t>()[t] * n + begin;
                 const T* from = op.d_out.as<T>() + t * n + begin;
                 for_lanes(width, [&](std::int64_t i, auto lanes) {
                   store(to + i, load(to + i, lanes) + load(from + i, lanes), lanes);
                 });
               }
             });
  });
}

}  // namespace tandem::cpu
