// Products of all experts in one launch. Offsets are read on the device, so the host need not know
// how many rows each expert got: the grid covers the worst case and idle blocks leave at once.
#include "grouped.h"
#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kTile = 64;      // of rows and columns of a block's output
constexpr int kDepth = 16;     // of the inner dimension at a time
constexpr int kThreads = 256;  // 16 x 16, each 4 x 4 outputs
constexpr int kSide = 16, kEach = kTile / kSide;

// A tile product from two loaders: a(i, l) and b(j, l) with the tile's rows i, columns j, depth l.
template <class LoadA, class LoadB>
__device__ __forceinline__ void tile_product(float (&sum)[kEach][kEach], int depth, LoadA a, LoadB b) {
  __shared__ float left[kDepth][kTile + 1], right[kDepth][kTile + 1];
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  for (int l0 = 0; l0 < depth; l0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int row = i / kDepth, l = i % kDepth;
      left[l][row] = l0 + l < depth ? a(row, l0 + l) : 0.0F;
      right[l][row] = l0 + l < depth ? b(row, l0 + l) : 0.0F;
    }
    __syncthreads();   // hazard: the tiles written before they are multiplied
#pragma unroll
    for (int l = 0; l < kDepth; ++l)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          sum[i][j] += left[l][ty + i * kSide] * right[l][tx + j * kSide];
    __syncthreads();   // hazard: the tiles read before the next round overwrites them
  }
}

// Block z = expert, y = tile of its rows, x = tile of output columns.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped(const T* x, const T* w, T* y, const int* offsets, int k, int n, bool trans_w) {
  const int first = offsets[blockIdx.z], rows = offsets[blockIdx.z + 1] - first;
  const int row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  if (row0 >= rows) return;
  const T* weight = w + std::int64_t{blockIdx.z} * k * n;
  const T* input = x + std::int64_t{first} * k;
  float sum[kEach][kEach] = {};
  tile_product(
      sum, k,
      [&](int i, int l) {
        return row0 + i < rows ? to_float(input[std::int64_t{row0 + i} * k + l]) : 0.0F;
      },
      [&](int j, int l) {
        if (col0 + j >= n) return 0.0F;
        return to_float(trans_w ? weight[std::int64_t{col0 + j} * k + l]
                                : weight[std::int64_t{l} * n + col0 + j]);
      });
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const int row = row0 + ty + i * kSide, col = col0 + tx + j * kSide;
      if (row < rows && col < n) y[std::int64_t{first + row} * n + col] = from_float<T>(sum[i][j]);
    }
}

// d_w [n, k] of expert z (+)= d_y^T x over its rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped_weight(const T* d_y, const T* x, float* d_w, const int* offsets, int n, int k,
                   bool accumulate) {
  const int first = offsets[blockIdx.z], rows = offsets[blockIdx.z + 1] - first;
  if (rows == 0) return;
  const int row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  float sum[kEach][kEach] = {};
  tile_product(
      sum, rows,
      [&](int i, int l) {
        return row0 + i < n ? to_float(d_y[std::int64_t{first + l} * n + row0 + i]) : 0.0F;
      },
      [&](int j, int l) {
        return col0 + j < k ? to_float(x[std::int64_t{first + l} * k + col0 + j]) : 0.0F;
      });
  float* out = d_w + std::int64_t{blockIdx.z} * n * k;
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const int row = row0 + ty + i * kSide, col = col0 + tx + j * kSide;
      if (row >= n || col >= k) continue;
      float& element = out[std::int64_t{row} * k + col];
      element = accumulate ? element + sum[i][j] : sum[i][j];
    }
}

constexpr int kZeroBlocks = 32;  // per expert: one alone still has the stores of many SMs

// Zeros d_w, `size` elements an expert, of experts without rows. Block y = expert, x = part of it.
template <int N>
__global__ void __launch_bounds__(kThreads)
    zero_idle(float* d_w, const int* offsets, std::int64_t size) {
  if (offsets[blockIdx.y + 1] > offsets[blockIdx.y]) return;
  auto* out = reinterpret_cast<Pack<float, N>*>(d_w + std::int64_t{blockIdx.y} * size);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size / N; i += step)
    out[i] = {};
}

unsigned experts_of(const View& offsets) { return static_cast<unsigned>(offsets.size() - 1); }

void zero_idle_experts(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  const std::int64_t size = op.d_y.cols * op.x.cols;
  auto* d_w = op.d_w.as<float>();
  with_pack<float>(
      size,
      [&]<int N>() {
        zero_idle<N><<<dim3(kZeroBlocks, experts_of(op.offsets)), kThreads, 0, stream.handle()>>>(
            d_w, op.offsets.as<int>(), size);
      },
      d_w);
  TANDEM_CUDA_CHECK_LAUNCH("grouped gemm weight, experts without rows");
}

}  // namespace

void plain_grouped(const ops::GroupedGemm& op, CudaStream& stream) {
  const std::int64_t k = op.x.cols, n = op.y.cols;
  with_storage(op.x.dtype, "grouped gemm", [&]<class T>() {
    grouped<T><<<dim3(blocks_for(n, kTile), blocks_for(op.x.rows, kTile), experts_of(op.offsets)),
                 kThreads, 0, stream.handle()>>>(op.x.as<T>(), op.w.as<T>(), op.y.as<T>(),
                                                 op.offsets.as<int>(), k, n, op.trans_w);
  });
  TANDEM_CUDA_CHECK_LAUNCH("grouped gemm");
}

void plain_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  const std::int64_t n = op.d_y.cols, k = op.x.cols;
  with_storage(op.x.dtype, "grouped gemm weight", [&]<class T>() {
    grouped_weight<T><<<dim3(blocks_for(k, kTile), blocks_for(n, kTile), experts_of(op.offsets)),
                        kThreads, 0, stream.handle()>>>(op.d_y.as<T>(), op.x.as<T>(),
                                                        op.d_w.as<float>(), op.offsets.as<int>(), n, k,
                                                        op.accumulate);
  });
  TANDEM_CUDA_CHECK_LAUNCH("grouped gemm weight");
}

void run(const ops::GroupedGemm& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  if (!hopper_grouped(op, stream)) plain_grouped(op, stream);
}

void run(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  if (op.x.rows == 0) {
    if (!op.accumulate && op.d_w.bytes() > 0)
      TANDEM_CUDA_CHECK(cudaMemsetAsync(op.d_w.data, 0, op.d_w.bytes(), stream.handle()));
    return;
  }
  // The kernels that multiply have nothing to do for experts without rows.
  if (!op.accumulate) zero_idle_experts(op, stream);
  if (!hopper_grouped(op, stream)) plain_grouped(op, stream);
}

}  // namespace tandem::cuda
