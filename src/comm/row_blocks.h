// Rows of a View, chosen by a list of blocks, to and from consecutive bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/comm/comm.h"

namespace tandem {

[[nodiscard]] std::size_t row_bytes(const View& view);
[[nodiscard]] std::byte* row(const View& view, std::int64_t index);
[[nodiscard]] std::size_t total_rows(const std::vector<RowBlock>& blocks);
// The rows of the blocks follow each other in memory; true for none.
[[nodiscard]] bool contiguous(const std::vector<RowBlock>& blocks);
// Where the first block that has rows begins; the view's beginning when none has.
[[nodiscard]] std::byte* first_row(const View& view, const std::vector<RowBlock>& blocks);

// The rows of both lists pairwise, in the longest runs that are consecutive on both sides:
// body(first row on the one side, on the other, number of rows). As many rows on both sides.
template <class Body>
void for_each_run(const std::vector<RowBlock>& from, const std::vector<RowBlock>& to, Body&& body) {
  RowBlock source, target;  // the run so far, on both sides
  auto place = to.begin();
  std::int64_t filled = 0;  // rows of *place already passed
  for (const RowBlock& block : from) {
    for (std::int64_t taken = 0; taken < block.rows;) {
      while (filled == place->rows) {
        ++place;
        filled = 0;
      }
      const std::int64_t rows = std::min(block.rows - taken, place->rows - filled);
      const RowBlock next_source{block.begin + taken, rows},
          next_target{place->begin + filled, rows};
      if (source.rows > 0 && source.begin + source.rows == next_source.begin &&
          target.begin + target.rows == next_target.begin) {
        source.rows += rows;
        target.rows += rows;
      } else {
        if (source.rows > 0) body(source.begin, target.begin, source.rows);
        source = next_source;
        target = next_target;
      }
      taken += rows;
      filled += rows;
    }
  }
  if (source.rows > 0) body(source.begin, target.begin, source.rows);
}

void pack_rows(const View& from, const std::vector<RowBlock>& blocks, std::byte* to);
void unpack_rows(const std::byte* from, const View& to, const std::vector<RowBlock>& blocks);
// As many rows on both sides; block boundaries may differ.
void copy_rows(const View& from, const std::vector<RowBlock>& from_blocks, const View& to,
               const std::vector<RowBlock>& to_blocks);

}  // namespace tandem
