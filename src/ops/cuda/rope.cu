// Rotary embedding on the q and k parts of qkv (Su et al. 2021).
#include <cmath>

#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

// table[position, j] = (cos, sin) of position * theta^(-2j / head_dim). Angles in double:
// positions times high frequencies lose digits in fp32.
__global__ void __launch_bounds__(kThreads)
    fill_table(float2* table, std::int64_t size, int half, double log2_theta) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  const auto j = static_cast<double>(i % half);
  double s, c;
  sincos(static_cast<double>(i / half) * exp2(-j / half * log2_theta), &s, &c);
  table[i] = {static_cast<float>(c), static_cast<float>(s)};
}

// The table of the shape last used on a stream: a model has one.
class RopeTable {
 public:
  struct Shape {
    std::int64_t seq_len = 0;
    int half = 0;
    double theta = 0.0;
    bool operator==(const Shape&) const = default;
  };
  explicit RopeTable(CudaStream& stream) : stream_(stream.handle()), memory_(stream) {}

  // Valid until the next call, in stream order.
  const float2* get(const Shape& wanted) {
    if (wanted == shape_) return table_;
    shape_ = {};   // should the memory run out, there is no table
    const std::int64_t size = wanted.seq_len * wanted.half;
    table_ = memory_.at_least<float2>(static_cast<std::size_t>(size));
    fill_table<<<blocks_for(size, kThreads), kThreads, 0, stream_>>>(table_, size, wanted.half,
                                                                     std::log2(wanted.theta));
    TANDEM_CUDA_CHECK_LAUNCH("rope table");
    shape_ = wanted;
    return table_;
  }

 private:
  cudaStream_t stream_;
  Workspace memory_;
  float2* table_ = nullptr;
  Shape shape_;   // that the table has
};

// One thread N pairs (j, j + half) of a head; `packs` counts threads with work.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    rope(T* qkv, const float2* table, int heads, int half, int row_width, int seq_len, float sign,
         std::int64_t packs) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= packs) return;
  const int per_head = half / N, j = static_cast<int>(index % per_head) * N;
  const std::int64_t head_row = index / per_head, t = head_row / heads;
  const int head = static_cast<int>(head_row % heads);
  T* x = qkv + t * row_width + std::int64_t{head} * 2 * half + j;
  auto& low = *reinterpret_cast<Pack<T, N>*>(x);
  auto& high = *reinterpret_cast<Pack<T, N>*>(x + half);
  const Pack<T, N> a = low, b = high;
  const float2* angle = table + t % seq_len * half + j;
  Pack<T, N> c, d;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float cosine = angle[i].x, sine = sign * angle[i].y;
    const float p = to_float(a.v[i]), q = to_float(b.v[i]);
    c.v[i] = from_float<T>(p * cosine - q * sine);
    d.v[i] = from_float<T>(q * cosine + p * sine);
  }
  low = c;
  high = d;
}

}  // namespace

void run(const ops::Rope& op, CudaStream& stream) {
  if (op.qkv.rows == 0) return;
  const auto heads = static_cast<int>(op.shape.heads + op.shape.kv_heads);   // k lies behind q
  const auto half = static_cast<int>(op.shape.head_dim / 2);
  const float2* table = stream.local<RopeTable>().get({op.shape.seq_len, half, op.theta});
  with_storage(op.qkv.dtype, "rope", [&]<class T>() {
    with_pack<T>(
        half,
        [&]<int N>() {
          const std::int64_t packs = op.qkv.rows * heads * (half / N);
          rope<T, N><<<blocks_for(packs, kThreads), kThreads, 0, stream.handle()>>>(
              op.qkv.as<T>(), table, heads, half, static_cast<int>(op.qkv.cols),
              static_cast<int>(op.shape.seq_len), op.inverse ? -1.0F : 1.0F, packs);
        },
        op.qkv.data);
  });
  TANDEM_CUDA_CHECK_LAUNCH("rope");
}

}  // namespace tandem::cuda
