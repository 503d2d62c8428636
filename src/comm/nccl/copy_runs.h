// Many copies inside one GPU's memory in one launch.
#pragma once

#include <cstddef>
#include <vector>

#include "../row_blocks.h"

struct CUstream_st;

namespace tandem {

struct CopyRun {
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
};

// Adds what copies the rows of the one side to those of the other, as many on both.
inline void add_rows(std::vector<CopyRun>& runs, const View& from,
                     const std::vector<RowBlock>& from_blocks, const View& to,
                     const std::vector<RowBlock>& to_blocks) {
  for_each_run(
      from_blocks, to_blocks, [&](std::int64_t source, std::int64_t target, std::int64_t rows) {
        runs.push_back(
            {row(from, source), row(to, target), static_cast<std::size_t>(rows) * row_bytes(from)});
      });
}

// Asynchronous on the stream. The runs do not overlap one another; empty ones are fine.
void copy_runs(const std::vector<CopyRun>& runs, CUstream_st* stream);

}  // namespace tandem
