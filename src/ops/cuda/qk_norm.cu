// RMS norm of queries and keys, in place on the q and k parts of qkv. Heads whose width is a few
// times a warp's have kernels with one warp a head; other groups have a block each.
#include <limits>

#include "kernel.cuh"
#include "parts.cuh"
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

// One block a (token, group), all on x: the other dimensions of a grid end at 65535.
template <class T>
__global__ void __launch_bounds__(kThreads)
    qk_norm_fwd(T* qkv, T* raw, const T* w_q, const T* w_k, float* rstd, Groups g, float eps) {
  const std::int64_t t = blockIdx.x / g.count;
  const int group = blockIdx.x % g.count, size = g.size(group);
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
  const std::int64_t t = blockIdx.x / g.count;
  const int group = blockIdx.x % g.count, size = g.size(group);
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
// d x rstd. Runs before qk_norm_bwd overwrites d. Block: [kWarp elements, kShare]; grid: parts x
// pieces of a part's elements.
template <class T>
__global__ void __launch_bounds__(kWarp* kShare)
    qk_norm_dw_parts(const T* d_qkv, const T* raw, const float* rstd, float* parts, Groups g,
                     int tokens) {
  __shared__ float shared[kShare][kWarp];
  const int width = g.q_size + g.k_size, pieces = (width + kWarp - 1) / kWarp;
  const int part = blockIdx.x / pieces, i = blockIdx.x % pieces * kWarp + threadIdx.x;
  const bool q = i < g.q_size;
  const int first = q ? 0 : g.q_groups, last = q ? g.q_groups : g.count;
  const int element = q ? i : i - g.q_size;
  const int begin = part * kTokensPerPart, end = min(tokens, begin + kTokensPerPart);
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
  parts[std::int64_t{part} * width + i] = sum;
}

// The same three for per-head groups of kWarp * N elements: one warp a (token, head), N neighbouring
// elements a lane, all heads of kHeadTokens tokens a block.
constexpr int kHeadThreads = 256;
constexpr int kHeadWarps = kHeadThreads / kWarp;
constexpr int kHeadTokens = 8;

template <class T, int N>
__device__ __forceinline__ Pack<T, N> of_lane(const T* group) {
  return reinterpret_cast<const Pack<T, N>*>(group)[threadIdx.x % kWarp];
}
template <class T, int N>
__device__ __forceinline__ void set_of_lane(T* group, const Pack<T, N>& values) {
  reinterpret_cast<Pack<T, N>*>(group)[threadIdx.x % kWarp] = values;
}

template <class T, int N>
__global__ void __launch_bounds__(kHeadThreads)
    head_norm_fwd(T* qkv, T* raw, const T* w_q, const T* w_k, float* rstd, Groups g, int tokens,
                  float eps) {
  const Pack<T, N> weight_q = of_lane<T, N>(w_q), weight_k = of_lane<T, N>(w_k);
  const int first = blockIdx.x * kHeadTokens, items = min(kHeadTokens, tokens - first) * g.count;
  for (int item = threadIdx.x / kWarp; item < items; item += kHeadWarps) {
    const std::int64_t t = first + item / g.count;
    const int group = item % g.count;
    T* x = qkv + t * (g.q_width + 2 * g.kv_width) + g.begin(group);
    const Pack<T, N> in = of_lane<T, N>(x);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += to_float(in.v[i]) * to_float(in.v[i]);
    const float r = rsqrtf(warp_sum(sum) / static_cast<float>(kWarp * N) + eps);
    const Pack<T, N>& w = g.is_q(group) ? weight_q : weight_k;
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = from_float<T>(to_float(in.v[i]) * r * to_float(w.v[i]));
    set_of_lane<T, N>(raw + t * (g.q_width + g.kv_width) + g.begin(group), in);
    set_of_lane<T, N>(x, out);
    if (threadIdx.x % kWarp == 0) rstd[t * g.count + group] = r;
  }
}

// parts[block]: [head_dim] of d x rstd over the block's q heads, then over its k heads.
template <class T, int N>
__global__ void __launch_bounds__(kHeadThreads)
    head_norm_bwd(T* d_qkv, const T* raw, const T* w_q, const T* w_k, const float* rstd,
                  float* parts, Groups g, int tokens) {
  constexpr int kWidth = 2 * kWarp * N;
  __shared__ float shared[kHeadWarps][kWidth];
  const Pack<T, N> weight_q = of_lane<T, N>(w_q), weight_k = of_lane<T, N>(w_k);
  float d_w_q[N] = {}, d_w_k[N] = {};
  const int first = blockIdx.x * kHeadTokens, items = min(kHeadTokens, tokens - first) * g.count;
  for (int item = threadIdx.x / kWarp; item < items; item += kHeadWarps) {
    const std::int64_t t = first + item / g.count;
    const int group = item % g.count;
    T* d = d_qkv + t * (g.q_width + 2 * g.kv_width) + g.begin(group);
    const Pack<T, N> grad = of_lane<T, N>(d);
    const Pack<T, N> x = of_lane<T, N>(raw + t * (g.q_width + g.kv_width) + g.begin(group));
    const float r = rstd[t * g.count + group];
    const bool q = g.is_q(group);
    const Pack<T, N>& w = q ? weight_q : weight_k;
    float dot = 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float product = to_float(grad.v[i]) * to_float(x.v[i]);
      dot += product * to_float(w.v[i]);
      d_w_q[i] += q ? product * r : 0.0F;
      d_w_k[i] += q ? 0.0F : product * r;
    }
    const float mean = warp_sum(dot) / static_cast<float>(kWarp * N) * r * r;
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i)
      out.v[i] = from_float<T>(r * (to_float(grad.v[i]) * to_float(w.v[i]) - to_float(x.v[i]) * mean));
    set_of_lane<T, N>(d, out);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = threadIdx.x % kWarp * N + i;
    shared[threadIdx.x / kWarp][at] = d_w_q[i];
    shared[threadIdx.x / kWarp][kWarp * N + at] = d_w_k[i];
  }
  __syncthreads();   // hazard: all warps' sums written before they are added
  for (int i = threadIdx.x; i < kWidth; i += kHeadThreads) {
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kHeadWarps; ++warp) sum += shared[warp][i];
    parts[std::int64_t{blockIdx.x} * kWidth + i] = sum;
  }
}

// Blocks of the kernels that have one a (token, group).
unsigned blocks_of_groups(int tokens, const Groups& groups) {
  const std::int64_t blocks = std::int64_t{tokens} * groups.count;
  if (blocks > std::numeric_limits<int>::max())
    throw_error(ExitCode::kUsage,
                "QK norm on CUDA: {} tokens with {} norm groups each are more than a launch holds; "
                "lower train.micro_batch",
                tokens, groups.count);
  return static_cast<unsigned>(blocks);
}

// body.template operator()<N>() where groups are heads of kWarp * N elements; false elsewhere.
template <class Body>
bool with_head_pack(const ops::HeadShape& shape, bool full, const Body& body) {
  if (full) return false;
  if (shape.head_dim == kWarp * 2) return body.template operator()<2>(), true;
  if (shape.head_dim == kWarp * 4) return body.template operator()<4>(), true;
  if (shape.head_dim == kWarp * 8) return body.template operator()<8>(), true;
  return false;
}

void add_weight_parts(const ops::QkNormBwd& op, const float* parts, int num_parts, const Groups& g,
                      cudaStream_t stream) {
  const int width = g.q_size + g.k_size;
  add_parts(parts, num_parts, width, op.d_w_q.as<float>(), g.q_size, stream);
  add_parts(parts + g.q_size, num_parts, width, op.d_w_k.as<float>(), g.k_size, stream);
}

}  // namespace

void run(const ops::QkNormFwd& op, CudaStream& stream) {
  if (op.qkv.rows == 0) return;
  const Groups groups(op.shape, op.full);
  const auto tokens = static_cast<int>(op.qkv.rows);
  with_storage(op.qkv.dtype, "qk norm", [&]<class T>() {
    const bool by_heads = with_head_pack(op.shape, op.full, [&]<int N>() {
      head_norm_fwd<T, N><<<blocks_for(tokens, kHeadTokens), kHeadThreads, 0, stream.handle()>>>(
          op.qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(),
          groups, tokens, op.eps);
    });
    if (by_heads) return;
    qk_norm_fwd<T><<<blocks_of_groups(tokens, groups), kThreads, 0, stream.handle()>>>(
        op.qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(), groups,
        op.eps);
  });
  TANDEM_CUDA_CHECK_LAUNCH("qk norm");
}

void run(const ops::QkNormBwd& op, CudaStream& stream) {
  if (op.d_qkv.rows == 0) return;
  const Groups groups(op.shape, op.full);
  const int width = groups.q_size + groups.k_size;
  const auto tokens = static_cast<int>(op.d_qkv.rows);
  with_storage(op.d_qkv.dtype, "qk norm backward", [&]<class T>() {
    auto& workspace = stream.local<Workspace>();
    const bool by_heads = with_head_pack(op.shape, op.full, [&]<int N>() {
      const auto num_parts = static_cast<int>(blocks_for(tokens, kHeadTokens));
      auto* parts = workspace.at_least<float>(std::size_t(num_parts) * std::size_t(width));
      head_norm_bwd<T, N><<<num_parts, kHeadThreads, 0, stream.handle()>>>(
          op.d_qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(),
          parts, groups, tokens);
      add_weight_parts(op, parts, num_parts, groups, stream.handle());
    });
    if (by_heads) return;
    const auto num_parts = static_cast<int>(blocks_for(tokens, kTokensPerPart));
    auto* parts = workspace.at_least<float>(std::size_t(num_parts) * std::size_t(width));
    qk_norm_dw_parts<T><<<blocks_for(width, kWarp) * num_parts, dim3(kWarp, kShare), 0,
                          stream.handle()>>>(op.d_qkv.as<T>(), op.raw.as<T>(), op.rstd.as<float>(),
                                             parts, groups, tokens);
    add_weight_parts(op, parts, num_parts, groups, stream.handle());
    qk_norm_bwd<T><<<blocks_of_groups(tokens, groups), kThreads, 0, stream.handle()>>>(
        op.d_qkv.as<T>(), op.raw.as<T>(), op.w_q.as<T>(), op.w_k.as<T>(), op.rstd.as<float>(),
        groups);
  });
  TANDEM_CUDA_CHECK_LAUNCH("qk norm backward");
}

}  // namespace tandem::cuda
