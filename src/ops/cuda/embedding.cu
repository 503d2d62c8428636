#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// An id outside the table traps: the data loader has checked them.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    embedding_fwd(const int* ids, const T* table, T* out, int cols, int vocab) {
  using P = Pack<T, N>;
  const int id = ids[blockIdx.x];
  if (id < 0 || id >= vocab) __trap();
  const auto* from = reinterpret_cast<const P*>(table + std::int64_t{id} * cols);
  auto* to = reinterpret_cast<P*>(out + std::int64_t{blockIdx.x} * cols);
  for (int i = threadIdx.x; i < cols / N; i += kThreads) to[i] = from[i];
}

// The block of a token that is the first with its id adds all tokens with that id, in order, so the
// sum needs no atomics and has one order. Ids are looked through a block's width at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_bwd(const int* ids, const T* d_out, float* d_table, int tokens, int cols) {
  __shared__ unsigned found[kThreads / kWarp];   // by warp: which of its tokens have the id
  const int id = ids[blockIdx.x];
  bool earlier = false;
  for (int t = threadIdx.x; t < blockIdx.x; t += kThreads) earlier = earlier || ids[t] == id;
  if (__syncthreads_or(earlier)) return;
  float* row = d_table + std::int64_t{id} * cols;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int first = blockIdx.x; first < tokens; first += kThreads) {
    const int t = first + threadIdx.x;
    const unsigned mine = __ballot_sync(kFullWarp, t < tokens && ids[t] == id);
    if (!__syncthreads_or(mine != 0)) continue;
    if (lane == 0) found[warp] = mine;
    __syncthreads();   // hazard: all warps' finds written before any thread reads them
    for (int w = 0; w < kThreads / kWarp; ++w)
      for (unsigned left = found[w]; left != 0; left &= left - 1) {
        const T* d = d_out + std::int64_t{first + w * kWarp + __ffs(left) - 1} * cols;
        for (int i = threadIdx.x; i < cols; i += kThreads) row[i] += to_float(d[i]);
      }
    __syncthreads();   // hazard: finds read before the next round writes them
  }
}

}  // namespace

void run(const ops::EmbeddingFwd& op, CudaStream& stream) {
  if (op.ids.size() == 0) return;
  with_storage(op.table.dtype, "embedding", [&]<class T>() {
    with_pack<T>(
        op.table.cols,
        [&]<int N>() {
          embedding_fwd<T, N><<<op.ids.size(), kThreads, 0, stream.handle()>>>(
              op.ids.as<int>(), op.table.as<T>(), op.out.as<T>(), op.table.cols, op.table.rows);
        },
        op.table.data, op.out.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("embedding");
}

void run(const ops::EmbeddingBwd& op, CudaStream& stream) {
  if (op.ids.size() == 0) return;
  with_storage(op.d_out.dtype, "embedding backward", [&]<class T>() {
    embedding_bwd<T><<<op.ids.size(), kThreads, 0, stream.handle()>>>(
        op.ids.as<int>(), op.d_out.as<T>(), op.d_table.as<float>(), op.ids.size(), op.d_out.cols);
  });
  TANDEM_CUDA_CHECK_LAUNCH("embedding backward");
}

}  // namespace tandem::cuda
