#include <algorithm>
#include <cstdint>

#include "tandem/device/cuda_check.h"
#include "copy_runs.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kRunsPerLaunch = 128;                          // 3 KiB of kernel parameters
constexpr std::size_t kBlockBytes = std::size_t{16} * kThreads * 4;  // four words a thread
constexpr std::size_t kBlocksPerLaunch = 2048;

struct RunTable {
  CopyRun runs[kRunsPerLaunch];
};

template <class Word>
__device__ void copy_words(const CopyRun& run) {
  const Word* from = reinterpret_cast<const Word*>(run.from);
  Word* to = reinterpret_cast<Word*>(run.to);
  const std::size_t words = run.bytes / sizeof(Word);
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
       i += stride)
    to[i] = from[i];
}

// One row of blocks per run, with the widest words its place and size allow.
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ RunTable table) {
  const CopyRun& run = table.runs[blockIdx.y];
  const std::uintptr_t odd = reinterpret_cast<std::uintptr_t>(run.from) |
                             reinterpret_cast<std::uintptr_t>(run.to) | run.bytes;
  if (odd % sizeof(uint4) == 0) {
    copy_words<uint4>(run);
  } else if (odd % sizeof(unsigned) == 0) {
    copy_words<unsigned>(run);
  } else {
    copy_words<unsigned char>(run);
  }
}

}  // namespace

void copy_runs(const std::vector<CopyRun>& runs, CUstream_st* stream) {
  for (std::size_t begin = 0; begin < runs.size(); begin += kRunsPerLaunch) {
    const std::size_t count = std::min(kRunsPerLaunch, runs.size() - begin);
    RunTable table{};
    std::copy_n(runs.begin() + static_cast<std::ptrdiff_t>(begin), count, table.runs);
    std::size_t longest = 0;
    for (std::size_t i = 0; i < count; ++i) longest = std::max(longest, table.runs[i].bytes);
    if (longest == 0) continue;
    const std::size_t blocks = std::clamp((longest + kBlockBytes - 1) / kBlockBytes, std::size_t{1},
                                          kBlocksPerLaunch / count);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    copy_kernel<<<grid, kThreads, 0, stream>>>(table);
    TANDEM_CUDA_CHECK_LAUNCH("copy_kernel");
  }
}

}  // namespace tandem
