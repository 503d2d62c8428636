// Plain causal grouped-query attention: one warp a row, keys one after the other, softmax online
// (Milakov & Gimelshein 2018). Every sum has one order.
#include <cmath>

#include "attention.h"
#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxHeadDim = 256;
constexpr int kSlots = kMaxHeadDim / kWarp;   // elements of a head vector a lane holds

struct Shape {
  int heads, kv_heads, head_dim, seq_len, tokens;
  float scale;

  Shape(const ops::HeadShape& s, std::int64_t rows)
      : heads(int(s.heads)), kv_heads(int(s.kv_heads)), head_dim(int(s.head_dim)),
        seq_len(int(s.seq_len)), tokens(int(rows)),
        scale(1.0F / std::sqrt(static_cast<float>(s.head_dim))) {}

  __host__ __device__ int q_width() const { return heads * head_dim; }
  __device__ int row_width() const { return (heads + 2 * kv_heads) * head_dim; }
  __device__ std::int64_t q(int t, int h) const { return std::int64_t{t} * row_width() + h * head_dim; }
  __device__ std::int64_t k(int t, int kv) const { return q(t, heads + kv); }
  __device__ std::int64_t v(int t, int kv) const { return q(t, heads + kv_heads + kv); }
  __device__ std::int64_t out(int t, int h) const { return std::int64_t{t} * q_width() + h * head_dim; }
  __device__ int group() const { return heads / kv_heads; }
};

// A head vector spread over the lanes of a warp: lane l holds elements l, l + 32, ...
struct HeadVector {
  float x[kSlots];

  template <class T>
  __device__ static HeadVector load(const T* from, int head_dim) {
    HeadVector v;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = s * kWarp + threadIdx.x % kWarp;
      v.x[s] = i < head_dim ? to_float(from[i]) : 0.0F;
    }
    return v;
  }
  template <class T>
  __device__ void store(T* to, int head_dim, float factor) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = s * kWarp + threadIdx.x % kWarp;
      if (i < head_dim) to[i] = from_float<T>(x[s] * factor);
    }
  }
  __device__ float dot(const HeadVector& o) const {
    float sum = 0.0F;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) sum += x[s] * o.x[s];
    return warp_sum(sum);
  }
  __device__ void add(const HeadVector& o, float factor) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) x[s] += factor * o.x[s];
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) x[s] *= factor;
  }
};

__device__ __forceinline__ std::int64_t warp_index() {
  return std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_fwd(const T* qkv, T* out, float* lse, Shape s) {
  const std::int64_t row = warp_index();
  if (row >= std::int64_t{s.tokens} * s.heads) return;
  const int t = static_cast<int>(row / s.heads), h = static_cast<int>(row % s.heads);
  const int kv = h / s.group();
  const auto q = HeadVector::load(qkv + s.q(t, h), s.head_dim);
  HeadVector sum{};
  float largest = -INFINITY, total = 0.0F;
  for (int u = t - t % s.seq_len; u <= t; ++u) {
    const float score = s.scale * q.dot(HeadVector::load(qkv + s.k(u, kv), s.head_dim));
    const float top = fmaxf(largest, score), shrink = expf(largest - top), p = expf(score - top);
    sum.scale(shrink);
    sum.add(HeadVector::load(qkv + s.v(u, kv), s.head_dim), p);
    total = total * shrink + p;
    largest = top;
  }
  sum.store(out + s.out(t, h), s.head_dim, 1.0F / total);
  if (threadIdx.x % kWarp == 0) lse[row] = largest + logf(total);
}

// delta[t, h] = out . d_out: what the softmax backward subtracts.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_delta(const T* out, const T* d_out, float* delta, Shape s) {
  const std::int64_t row = warp_index();
  if (row >= std::int64_t{s.tokens} * s.heads) return;
  const std::int64_t at = row * s.head_dim;
  const float dot =
      HeadVector::load(out + at, s.head_dim).dot(HeadVector::load(d_out + at, s.head_dim));
  if (threadIdx.x % kWarp == 0) delta[row] = dot;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_dq(const T* qkv, const T* d_out, const float* lse, const float* delta, T* d_qkv, Shape s) {
  const std::int64_t row = warp_index();
  if (row >= std::int64_t{s.tokens} * s.heads) return;
  const int t = static_cast<int>(row / s.heads), h = static_cast<int>(row % s.heads);
  const int kv = h / s.group();
  const auto q = HeadVector::load(qkv + s.q(t, h), s.head_dim);
  const auto d = HeadVector::load(d_out + s.out(t, h), s.head_dim);
  HeadVector sum{};
  for (int u = t - t % s.seq_len; u <= t; ++u) {
    const auto k = HeadVector::load(qkv + s.k(u, kv), s.head_dim);
    const float p = expf(s.scale * q.dot(k) - lse[row]);
    const float d_p = d.dot(HeadVector::load(qkv + s.v(u, kv), s.head_dim));
    sum.add(k, p * (d_p - delta[row]));
  }
  sum.store(d_qkv + s.q(t, h), s.head_dim, s.scale);
}

// One warp a (key, kv head): queries ascending, within one the heads of the group ascending.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_dkv(const T* qkv, const T* d_out, const float* lse, const float* delta, T* d_qkv, Shape s) {
  const std::int64_t row = warp_index();
  if (row >= std::int64_t{s.tokens} * s.kv_heads) return;
  const int u = static_cast<int>(row / s.kv_heads), kv = static_cast<int>(row % s.kv_heads);
  const auto k = HeadVector::load(qkv + s.k(u, kv), s.head_dim);
  const auto v = HeadVector::load(qkv + s.v(u, kv), s.head_dim);
  HeadVector d_k{}, d_v{};
  const int end = u - u % s.seq_len + s.seq_len;
  for (int t = u; t < end; ++t)
    for (int h = kv * s.group(); h < (kv + 1) * s.group(); ++h) {
      const std::int64_t at = std::int64_t{t} * s.heads + h;
      const auto q = HeadVector::load(qkv + s.q(t, h), s.head_dim);
      const auto d = HeadVector::load(d_out + s.out(t, h), s.head_dim);
      const float p = expf(s.scale * q.dot(k) - lse[at]);
      d_v.add(d, p);
      d_k.add(q, p * (d.dot(v) - delta[at]));
    }
  d_k.store(d_qkv + s.k(u, kv), s.head_dim, s.scale);
  d_v.store(d_qkv + s.v(u, kv), s.head_dim, 1.0F);
}

void check_shape(const ops::HeadShape& shape) {
  if (shape.head_dim > kMaxHeadDim)
    throw_error(ExitCode::kUsage, "attention on CUDA: model.head_dim is {}, at most {} is built",
                shape.head_dim, kMaxHeadDim);
}

}  // namespace

void plain_attention(const ops::AttentionFwd& op, CudaStream& stream) {
  check_shape(op.shape);
  const Shape shape(op.shape, op.out.rows);
  with_storage(op.qkv.dtype, "attention", [&]<class T>() {
    attention_fwd<T><<<blocks_for(op.out.rows * op.shape.heads, kWarps), kThreads, 0,
                       stream.handle()>>>(op.qkv.as<T>(), op.out.as<T>(), op.lse.as<float>(), shape);
  });
  TANDEM_CUDA_CHECK_LAUNCH("attention");
}

void plain_attention(const ops::AttentionBwd& op, CudaStream& stream) {
  check_shape(op.shape);
  const Shape shape(op.shape, op.out.rows);
  const std::int64_t rows = op.out.rows * op.shape.heads;
  auto* delta = stream.local<Workspace>().at_least<float>(static_cast<std::size_t>(rows));
  with_storage(op.qkv.dtype, "attention backward", [&]<class T>() {
    const auto* d_out = op.d_out.as<T>();
    const auto* lse = op.lse.as<float>();
    attention_delta<T><<<blocks_for(rows, kWarps), kThreads, 0, stream.handle()>>>(
        op.out.as<T>(), d_out, delta, shape);
    attention_dq<T><<<blocks_for(rows, kWarps), kThreads, 0, stream.handle()>>>(
        op.qkv.as<T>(), d_out, lse, delta, op.d_qkv.as<T>(), shape);
    attention_dkv<T><<<blocks_for(op.out.rows * op.shape.kv_heads, kWarps), kThreads, 0,
                       stream.handle()>>>(op.qkv.as<T>(), d_out, lse, delta, op.d_qkv.as<T>(), shape);
  });
  TANDEM_CUDA_CHECK_LAUNCH("attention backward");
}

void run(const ops::AttentionFwd& op, CudaStream& stream) {
  if (op.out.rows == 0) return;
  if (!cudnn_attention(op, stream)) plain_attention(op, stream);
}

void run(const ops::AttentionBwd& op, CudaStream& stream) {
  if (op.out.rows == 0) return;
  if (!cudnn_attention(op, stream)) plain_attention(op, stream);
}

}  // namespace tandem::cuda
