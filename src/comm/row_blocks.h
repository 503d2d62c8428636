// Rows of a View, chosen by a list of blocks, to and from consecutive bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "tandem/comm/comm.h"

namespace tandem {

[[nodiscard]] std::size_t row_bytes(const View& view);
[[nodiscard]] std::size_t total_rows(const std::vector<RowBlock>& blocks);
// The rows of the blocks follow each other in memory; true for none.
[[nodiscard]] bool contiguous(const std::vector<RowBlock>& blocks);
// Where the first block that has rows begins; the view's beginning when none has.
[[nodiscard]] std::byte* first_row(const View& view, const std::vector<RowBlock>& blocks);

void pack_rows(const View& from, const std::vector<RowBlock>& blocks, std::byte* to);
void unpack_rows(const std::byte* from, const View& to, const std::vector<RowBlock>& blocks);
// As many rows on both sides; block boundaries may differ.
void copy_rows(const View& from, const std::vector<RowBlock>& from_blocks, const View& to,
               const std::vector<RowBlock>& to_blocks);

}  // namespace tandem
