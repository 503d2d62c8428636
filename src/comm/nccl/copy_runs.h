// Many copies inside one GPU's memory in one launch.
#pragma once

#include <cstddef>
#include <vector>

struct CUstream_st;

namespace tandem {

struct CopyRun {
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
};

// Asynchronous on the stream. The runs do not overlap one another; empty ones are fine.
void copy_runs(const std::vector<CopyRun>& runs, CUstream_st* stream);

}  // namespace tandem
