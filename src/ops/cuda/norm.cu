#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// One block a row. Apply: rstd is given, else it is computed and kept.
template <class T, int N, bool Apply>
__global__ void __launch_bounds__(kThreads)
    norm_fwd(const T* x, const T* w, T* y, float* rstd, int cols, float eps) {
  using P = Pack<T, N>;
  const auto* row = reinterpret_cast<const P*>(x + std::int64_t{blockIdx.x} * cols);
  const int packs = cols / N;
  float r;
  if constexpr (Apply) {
    r = rstd[blockIdx.x];
  } else {
    float sum = 0.0F;
    for (int i = threadIdx.x; i < packs; i += kThreads) {
      const P p = row[i];
#pragma unroll
      for (int j = 0; j < N; ++j) sum += to_float(p.v[j]) * to_float(p.v[j]);
    }
    r = rsqrtf(block_sum<kThreads>(sum) / static_cast<float>(cols) + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  }
  auto* out = reinterpret_cast<P*>(y + std::int64_t{blockIdx.x} * cols);
  const auto* weight = reinterpret_cast<const P*>(w);
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const P p = row[i], q = weight[i];
    P o;
#pragma unroll
    for (int j = 0; j < N; ++j) o.v[j] = from_float<T>(to_float(p.v[j]) * r * to_float(q.v[j]));
    out[i] = o;
  }
}

// d_x of one row: rstd (g - x rstd^2 mean(g x)), g = d_y w, plus `add` where given.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    norm_bwd(const T* d_y, const T* x, const T* w, const float* rstd, const T* add, T* d_x, int cols) {
  using P = Pack<T, N>;
  const std::int64_t begin = std::int64_t{blockIdx.x} * cols;
  const auto* dy = reinterpret_cast<const P*>(d_y + begin);
  const auto* xs = reinterpret_cast<const P*>(x + begin);
  const auto* ws = reinterpret_cast<const P*>(w);
  const int packs = cols / N;
  float dot = 0.0F;
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const P a = dy[i], b = xs[i], c = ws[i];
#pragma unroll
    for (int j = 0; j < N; ++j) dot += to_float(a.v[j]) * to_float(c.v[j]) * to_float(b.v[j]);
  }
  const float r = rstd[blockIdx.x];
  const float mean = block_sum<kThreads>(dot) / static_cast<float>(cols) * r * r;
  const auto* more = reinterpret_cast<const P*>(add == nullptr ? nullptr : add + begin);
  auto* out = reinterpret_cast<P*>(d_x + begin);
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const P a = dy[i], b = xs[i], c = ws[i];
    P base{};
    if (more != nullptr) base = more[i];
    P o;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(a.v[j]) * to_float(c.v[j]);
      const float sum = r * (g - to_float(b.v[j]) * mean);
      o.v[j] = from_float<T>(more == nullptr ? sum : to_float(base.v[j]) + sum);
    }
    out[i] = o;
  }
}

constexpr int kRowsPerPart = 128;   // rows one thread sums for d_w before the parts are added

// parts[p, c] = sum over the rows of part p of d_y x rstd.
template <class T>
__global__ void norm_dw_parts(const T* d_y, const T* x, const float* rstd, float* parts, int rows,
                              int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const int begin = blockIdx.y * kRowsPerPart, end = min(rows, begin + kRowsPerPart);
  float sum = 0.0F;
  for (int t = begin; t < end; ++t) {
    const std::int64_t at = std::int64_t{t} * cols + c;
    sum += to_float(d_y[at]) * to_float(x[at]) * rstd[t];
  }
  parts[std::int64_t{blockIdx.y} * cols + c] = sum;
}

__global__ void add_parts(const float* parts, float* out, int num_parts, int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float sum = 0.0F;
  for (int p = 0; p < num_parts; ++p) sum += parts[std::int64_t{p} * cols + c];
  out[c] += sum;
}

}  // namespace

void run(const ops::RmsNormFwd& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  with_storage(op.x.dtype, "rms norm", [&]<class T>() {
    with_pack<T>(
        op.x.cols,
        [&]<int N>() {
          norm_fwd<T, N, false><<<op.x.rows, kThreads, 0, stream.handle()>>>(
              op.x.as<T>(), op.w.as<T>(), op.y.as<T>(), op.rstd.as<float>(), op.x.cols, op.eps);
        },
        op.x.data, op.w.data, op.y.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("rms norm");
}

void run(const ops::RmsNormApply& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  with_storage(op.x.dtype, "rms norm", [&]<class T>() {
    with_pack<T>(
        op.x.cols,
        [&]<int N>() {
          norm_fwd<T, N, true><<<op.x.rows, kThreads, 0, stream.handle()>>>(
              op.x.as<T>(), op.w.as<T>(), op.y.as<T>(), op.rstd.as<float>(), op.x.cols, 0.0F);
        },
        op.x.data, op.w.data, op.y.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("rms norm again");
}

void run(const ops::RmsNormBwd& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  const auto rows = static_cast<int>(op.x.rows), cols = static_cast<int>(op.x.cols);
  const auto parts = static_cast<int>(blocks_for(rows, kRowsPerPart));
  auto* sums = stream.local<Workspace>().at_least<float>(std::size_t(parts) * std::size_t(cols));
  with_storage(op.x.dtype, "rms norm backward", [&]<class T>() {
    // The weight's gradient first: d_x may overwrite what it reads.
    norm_dw_parts<T><<<dim3(blocks_for(cols, kThreads), parts), kThreads, 0, stream.handle()>>>(
        op.d_y.as<T>(), op.x.as<T>(), op.rstd.as<float>(), sums, rows, cols);
    add_parts<<<blocks_for(cols, kThreads), kThreads, 0, stream.handle()>>>(
        sums, op.d_w.as<float>(), parts, cols);
    with_pack<T>(
        cols,
        [&]<int N>() {
          norm_bwd<T, N><<<rows, kThreads, 0, stream.handle()>>>(
              op.d_y.as<T>(), op.x.as<T>(), op.w.as<T>(), op.rstd.as<float>(), op.add.as<T>(),
              op.d_x.as<T>(), cols);
        },
        op.d_y.data, op.x.data, op.w.data, op.add.data, op.d_x.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("rms norm backward");
}

}  // namespace tandem::cuda
