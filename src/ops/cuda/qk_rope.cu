// QK norm and rotary embedding on the q and k parts of qkv.
#include <cmath>

#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

// How q and k are cut into norm groups: per head, or q and k as a whole.
struct Groups {
  int count, q_groups;        // of a token
  int q_width, kv_width;      // elements of q and of k
  int q_size, k_size;         // elements of a group

  explicit Groups(const ops::HeadShape& s, bool full)
      : count(full ? 2 : int(s.heads + s.kv_heads)), q_groups(full ? 1 : int(s.heads)),
        q_width(int(s.heads * s.head_dim)), kv_width(int(s.kv_heads * s.head_dim)),
        q_size(full ? q_width : int(s.head_dim)), k_size(full ? kv_width : int(s.head_dim)) {}

  __device__ bool is_q(int group) const { return group < q_groups; }
  __device__ int size(int group) const { return is_q(group) ? q_size : k_size; }
  __device__ int begin(int group) const {   // within [q, k]
    return is_q(group) ? group * q_size : q_width + (group - q_groups) * k_size;
  }
};

// One block a (token, group).
template <class T>
__global__ void __launch_bounds__(kThreads)
    qk_norm_fwd(T* qkv, T* raw, const T* w_q, const T* w_k, float* rstd, Groups g, float eps) {
  const std::int64_t t = blockIdx.y;
  const int group = blockIdx.x, size = g.size(group);
  T* x = qkv + t * (g.q_width + 2 * g.kv_width) + g.begin(group);
  T* keep = raw + t * (g.q_width + g.kv_width) + g.begin(group);
  const T* w = g.is_q(group) ? w_q : w_k;
  float sum = 0.0F;
  for (int i = threadIdx.x; i < size; i += kThreads) sum += to_float(x[i]) * to_float(x[i]);
  const float r = rsqrtf(block_sum<kThreads>(sum) / static_cast<float>(size) + eps);
  if (threadIdx.x == 0) rstd[t * g.count + group] = r;
  for (int i = threadIdx.x; i < size; i += kThreads) {
    keep[i] = x[i];
    x[i] = from_float<T>(to_float(x[i]) * r * to_float(w[i]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    qk_norm_bwd(T* d_qkv, const T* raw, const T* w_q, const T* w_k, const float* rstd, Groups g) {
  const std::int64_t t = blockIdx.y;
  const int group = blockIdx.x, size = g.size(group);
  T* d = d_qkv + t * (g.q_width + 2 * g.kv_width) + g.begin(group);
  const T* x = raw + t * (g.q_width + g.kv_width) + g.begin(group);
  const T* w = g.is_q(group) ? w_q : w_k;
  float dot = 0.0F;
  for (int i = threadIdx.x; i < size; i += kThreads)
    dot += to_float(d[i]) * to_float(w[i]) * to_float(x[i]);
  const float r = rstd[t * g.count + group];
  const float mean = block_sum<kThreads>(dot) / static_cast<float>(size) * r * r;
  for (int i = threadIdx.x; i < size; i += kThreads)
    d[i] = from_float<T>(r * (to_float(d[i]) * to_float(w[i]) - to_float(x[i]) * mean));
}

constexpr int kTokensPerPart = 16;
constexpr int kShare = 8;   // threads that share the groups of an element

// parts[p, i]: over the tokens of part p and all groups of this kind (q: i < q_size, then k) of
// d x rstd. Runs before qk_norm_bwd overwrites d. Block: [kWarp elements, kShare].
template <class T>
__global__ void __launch_bounds__(kWarp* kShare)
    qk_norm_dw_parts(const T* d_qkv, const T* raw, const float* rstd, float* parts, Groups g,
                     int tokens) {
  __shared__ float shared[kShare][kWarp];
  const int i = blockIdx.x * kWarp + threadIdx.x, width = g.q_size + g.k_size;
  const bool q = i < g.q_size;
  const int first = q ? 0 : g.q_groups, last = q ? g.q_groups : g.count;
  const int element = q ? i : i - g.q_size;
  const int begin = blockIdx.y * kTokensPerPart, end = min(tokens, begin + kTokensPerPart);
  float sum = 0.0F;
  if (i < width) {
    for (std::int64_t t = begin; t < end; ++t) {
#pragma unroll 4
      for (int group = first + threadIdx.y; group < last; group += kShare) {
        const int at = g.begin(group) + element;
        sum += to_float(d_qkv[t * (g.q_width + 2 * g.kv_width) + at]) *
               to_float(raw[t * (g.q_width + g.kv_width) + at]) * rstd[t * g.count + group];
      }
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // hazard: all shares written before the first row adds them
  if (threadIdx.y != 0 || i >= width) return;
  for (int share = 1; share < kShare; ++share) sum += shared[share][threadIdx.x];
  parts[std::int64_t{blockIdx.y} * width + i] = sum;
}

__global__ void add_parts(const float* parts, float* d_w_q, float* d_w_k, int num_parts, int q_size,
                          int k_size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= q_size + k_size) return;
  float sum = 0.0F;
  for (int p = 0; p < num_parts; ++p) sum += parts[std::int64_t{p} * (q_size + k_size) + i];
  if (i < q_size)
    d_w_q[i] += sum;
  else
    d_w_k[i - q_size] += sum;
}

// One thread a pair (j, j + head_dim / 2). Angles in double: positions times high frequencies lose
// digits in fp32.
template <class T>
__global__ void rope(T* qkv, int heads, int head_dim, int row_width, int seq_len, double log2_theta,
                     float sign, std::int64_t pairs) {
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= pairs) return;
  const int half = head_dim / 2;
  const int j = static_cast<int>(index % half);
  const std::int64_t head_row = index / half;
  const std::int64_t t = head_row / heads;
  const int head = static_cast<int>(head_row % heads);
  const double angle = static_cast<double>(t % seq_len) * exp2(-2.0 * j / head_dim * log2_theta);
  double s, c;
  sincos(angle, &s, &c);
  const auto cosine = static_cast<float>(c), sine = sign * static_cast<float>(s);
  T* x = qkv + t * row_width + std::int64_t{head} * head_dim + j;
  const float a = to_float(x[0]), b = to_float(x[half]);
  x[0] = from_float<T>(a * cosine - b * sine);
  x[half] = from_float<T>(b * cosine + a * sine);
}

}  // namespace

void run(const ops::QkNormFwd& op, CudaStream& stream) {
  if (op.qkv.rows == 0) return;
  const Groups groups(op.shape, op.full);
  with_storage(op.qkv.dtype, "qk norm", [&]<class T>() {
    qk_norm_fwd<T><<<dim3(groups.count, op.qkv.rows), kThreads, 0, stream.handle()>>>(
        op.qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(), groups,
        op.eps);
  });
  TANDEM_CUDA_CHECK_LAUNCH("qk norm");
}

void run(const ops::QkNormBwd& op, CudaStream& stream) {
  if (op.d_qkv.rows == 0) return;
  const Groups groups(op.shape, op.full);
  const int width = groups.q_size + groups.k_size;
  const auto parts = static_cast<int>(blocks_for(op.d_qkv.rows, kTokensPerPart));
  auto* sums = stream.local<Workspace>().at_least<float>(std::size_t(parts) * std::size_t(width));
  with_storage(op.d_qkv.dtype, "qk norm backward", [&]<class T>() {
    qk_norm_dw_parts<T><<<dim3(blocks_for(width, kWarp), parts), dim3(kWarp, kShare), 0,
                          stream.handle()>>>(
        op.d_qkv.as<T>(), op.raw.as<T>(), op.rstd.as<float>(), sums, groups, op.d_qkv.rows);
    add_parts<<<blocks_for(width, kThreads), kThreads, 0, stream.handle()>>>(
        sums, op.d_w_q.as<float>(), op.d_w_k.as<float>(), parts, groups.q_size, groups.k_size);
    qk_norm_bwd<T><<<dim3(groups.count, op.d_qkv.rows), kThreads, 0, stream.handle()>>>(
        op.d_qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(),
        groups);
  });
  TANDEM_CUDA_CHECK_LAUNCH("qk norm backward");
}

void run(const ops::Rope& op, CudaStream& stream) {
  if (op.qkv.rows == 0) return;
  const auto heads = op.shape.heads + op.shape.kv_heads;   // q heads and k heads lie side by side
  const std::int64_t pairs = op.qkv.rows * heads * (op.shape.head_dim / 2);
  with_storage(op.qkv.dtype, "rope", [&]<class T>() {
    rope<T><<<blocks_for(pairs, kThreads), kThreads, 0, stream.handle()>>>(
        op.qkv.as<T>(), heads, op.shape.head_dim, op.qkv.cols, op.shape.seq_len,
        std::log2(op.theta), op.inverse ? -1.0F : 1.0F, pairs);
  });
  TANDEM_CUDA_CHECK_LAUNCH("rope");
}

}  // namespace tandem::cuda
