#include "kernel.cuh"
#include "parts.cuh"
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

constexpr int kRowsPerPart = 8;   // rows whose sum for d_w one block forms

// Of the rows of one part: d_x = rstd (g - x rstd^2 mean(g x)), g = d_y w, plus `add` where given;
// and parts[part, c] = sum of d_y x rstd. Each thread keeps its columns, at most Packs packs.
template <class T, int N, int Packs>
__global__ void __launch_bounds__(kThreads)
    norm_bwd(const T* d_y, const T* x, const T* w, const float* rstd, const T* add, T* d_x,
             float* parts, int rows, int cols) {
  using P = Pack<T, N>;
  const int packs = cols / N;
  const auto* ws = reinterpret_cast<const P*>(w);
  P weight[Packs];
  float d_w[Packs][N] = {};
#pragma unroll
  for (int k = 0; k < Packs; ++k)
    if (const int i = threadIdx.x + k * kThreads; i < packs) weight[k] = ws[i];

  const int begin = blockIdx.x * kRowsPerPart, end = min(rows, begin + kRowsPerPart);
  for (int t = begin; t < end; ++t) {
    const std::int64_t first = std::int64_t{t} * cols;
    const auto* dys = reinterpret_cast<const P*>(d_y + first);
    const auto* xs = reinterpret_cast<const P*>(x + first);
    const auto* more = reinterpret_cast<const P*>(add == nullptr ? nullptr : add + first);
    auto* out = reinterpret_cast<P*>(d_x + first);
    const float r = rstd[t];
    P dy[Packs], in[Packs], base[Packs] = {};
    float dot = 0.0F;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      const int i = threadIdx.x + k * kThreads;
      if (i >= packs) continue;
      dy[k] = dys[i];
      in[k] = xs[i];
      if (more != nullptr) base[k] = more[i];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float product = to_float(dy[k].v[j]) * to_float(in[k].v[j]);
        dot += product * to_float(weight[k].v[j]);
        d_w[k][j] += product * r;
      }
    }
    const float mean = block_sum<kThreads>(dot) / static_cast<float>(cols) * r * r;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      const int i = threadIdx.x + k * kThreads;
      if (i >= packs) continue;
      P o;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(dy[k].v[j]) * to_float(weight[k].v[j]);
        const float sum = r * (g - to_float(in[k].v[j]) * mean);
        o.v[j] = from_float<T>(more == nullptr ? sum : to_float(base[k].v[j]) + sum);
      }
      out[i] = o;
    }
  }
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    const int i = threadIdx.x + k * kThreads;
    if (i >= packs) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) parts[std::int64_t{blockIdx.x} * cols + i * N + j] = d_w[k][j];
  }
}

// The same for rows too long for registers: read twice, with sums for d_w in memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_bwd_long(const T* d_y, const T* x, const T* w, const float* rstd, const T* add, T* d_x,
                  float* parts, int rows, int cols) {
  const int begin = blockIdx.x * kRowsPerPart, end = min(rows, begin + kRowsPerPart);
  float* d_w = parts + std::int64_t{blockIdx.x} * cols;
  for (int t = begin; t < end; ++t) {
    const std::int64_t first = std::int64_t{t} * cols;
    float dot = 0.0F;
    for (int c = threadIdx.x; c < cols; c += kThreads)
      dot += to_float(d_y[first + c]) * to_float(x[first + c]) * to_float(w[c]);
    const float r = rstd[t];
    const float mean = block_sum<kThreads>(dot) / static_cast<float>(cols) * r * r;
    for (int c = threadIdx.x; c < cols; c += kThreads) {
      const float dy = to_float(d_y[first + c]), in = to_float(x[first + c]);
      d_w[c] = (t == begin ? 0.0F : d_w[c]) + dy * in * r;
      const float sum = r * (dy * to_float(w[c]) - in * mean);
      d_x[first + c] = from_float<T>(add == nullptr ? sum : to_float(add[first + c]) + sum);
    }
  }
}

// body.template operator()<Packs>(): packs a thread keeps for rows of so many; 0: too many.
template <class Body>
void with_packs(std::int64_t packs, const Body& body) {
  if (packs <= kThreads) return body.template operator()<1>();
  if (packs <= 2 * kThreads) return body.template operator()<2>();
  if (packs <= 4 * kThreads) return body.template operator()<4>();
  return body.template operator()<0>();
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
  const auto num_parts = static_cast<int>(blocks_for(rows, kRowsPerPart));
  auto* parts = stream.local<Workspace>().at_least<float>(std::size_t(num_parts) * std::size_t(cols));
  with_storage(op.x.dtype, "rms norm backward", [&]<class T>() {
    with_pack<T>(
        cols,
        [&]<int N>() {
          with_packs(cols / N, [&]<int Packs>() {
            auto* kernel = norm_bwd_long<T>;
            if constexpr (Packs > 0) kernel = norm_bwd<T, N, Packs>;
            kernel<<<num_parts, kThreads, 0, stream.handle()>>>(
                op.d_y.as<T>(), op.x.as<T>(), op.w.as<T>(), op.rstd.as<float>(), op.add.as<T>(),
                op.d_x.as<T>(), parts, rows, cols);
          });
        },
        op.d_y.data, op.x.data, op.w.data, op.add.data, op.d_x.data);
  });
  add_parts(parts, num_parts, cols, op.d_w.as<float>(), cols, stream.handle());
  TANDEM_CUDA_CHECK_LAUNCH("rms norm backward");
}

}  // namespace tandem::cuda
