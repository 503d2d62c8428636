#include "row_blocks.h"

#include <cstring>

namespace tandem {

std::byte* row(const View& view, std::int64_t index) {
  return view.as<std::byte>() + static_cast<std::size_t>(index) * row_bytes(view);
}

std::size_t row_bytes(const View& view) {
  return static_cast<std::size_t>(view.cols) * size_of(view.dtype);
}

std::size_t total_rows(const std::vector<RowBlock>& blocks) {
  std::int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += block.rows;
  return static_cast<std::size_t>(rows);
}

bool contiguous(const std::vector<RowBlock>& blocks) {
  std::int64_t next = -1;
  for (const RowBlock& block : blocks) {
    if (block.rows == 0) continue;
    if (next >= 0 && block.begin != next) return false;
    next = block.begin + block.rows;
  }
  return true;
}

std::byte* first_row(const View& view, const std::vector<RowBlock>& blocks) {
  for (const RowBlock& block : blocks) {
    if (block.rows > 0) return row(view, block.begin);
  }
  return view.as<std::byte>();
}

void pack_rows(const View& from, const std::vector<RowBlock>& blocks, std::byte* to) {
  for (const RowBlock& block : blocks) {
    const std::size_t bytes = static_cast<std::size_t>(block.rows) * row_bytes(from);
    if (bytes == 0) continue;
    std::memcpy(to, row(from, block.begin), bytes);
    to += bytes;
  }
}

void unpack_rows(const std::byte* from, const View& to, const std::vector<RowBlock>& blocks) {
  for (const RowBlock& block : blocks) {
    const std::size_t bytes = static_cast<std::size_t>(block.rows) * row_bytes(to);
    if (bytes == 0) continue;
    std::memcpy(row(to, block.begin), from, bytes);
    from += bytes;
  }
}

void copy_rows(const View& from, const std::vector<RowBlock>& from_blocks, const View& to,
               const std::vector<RowBlock>& to_blocks) {
  for_each_run(from_blocks, to_blocks,
               [&](std::int64_t source, std::int64_t target, std::int64_t rows) {
                 std::memcpy(row(to, target), row(from, source),
                             static_cast<std::size_t>(rows) * row_bytes(from));
               });
}

}  // namespace tandem
