#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumBlocks = 256;   // fixed, so that sums have one order on every GPU

template <class From, class To, class F>
__global__ void map2(const From* a, const To* b, To* out, std::int64_t n, F f) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) out[i] = from_float<To>(f(to_float(a[i]), to_float(b[i])));
}

template <class From, class To>
__global__ void cast(const From* from, To* to, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) to[i] = from_float<To>(to_float(from[i]));
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <bool Square>
__global__ void __launch_bounds__(kThreads) sum_parts(const float* in, double* parts, std::int64_t n) {
  __shared__ double shared[kThreads];
  double sum = 0.0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{kSumBlocks} * kThreads) {
    const double x = in[i];
    sum += Square ? x * x : x;
  }
  shared[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();   // hazard: the writes of the last round before this round reads them
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = shared[0];
}

__global__ void finish_sum(const double* parts, float* out, bool add) {
  double sum = 0.0;
  for (int i = 0; i < kSumBlocks; ++i) sum += parts[i];
  out[0] = static_cast<float>(sum + (add ? static_cast<double>(out[0]) : 0.0));
}

template <bool Square>
void sum(const View& in, const View& out, CudaStream& stream) {
  auto* parts = stream.local<Workspace>().at_least<double>(kSumBlocks);
  sum_parts<Square><<<kSumBlocks, kThreads, 0, stream.handle()>>>(in.as<float>(), parts, in.size());
  finish_sum<<<1, 1, 0, stream.handle()>>>(parts, out.as<float>(), !Square);
  TANDEM_CUDA_CHECK_LAUNCH("sum");
}

__global__ void clip_scale(const float* square_sum, float* norm, float* scale, float clip,
                           float grad_factor) {
  norm[0] = sqrtf(square_sum[0]) / grad_factor;
  const float bounded = clip > 0.0F ? fminf(1.0F, clip / (norm[0] + 1e-6F)) : 1.0F;
  scale[0] = isfinite(norm[0]) ? bounded / grad_factor : nanf("");
}

}  // namespace

void run(const ops::Add& op, CudaStream& stream) {
  if (op.out.size() == 0) return;
  with_storage(op.out.dtype, "add", [&]<class T>() {
    map2<<<blocks_for(op.out.size(), kThreads), kThreads, 0, stream.handle()>>>(
        op.a.as<T>(), op.b.as<T>(), op.out.as<T>(), op.out.size(), Plus{});
  });
  TANDEM_CUDA_CHECK_LAUNCH("add");
}

void run(const ops::AddTo& op, CudaStream& stream) {
  if (op.to.size() == 0) return;
  with_storage(op.from.dtype, "add to", [&]<class T>() {
    map2<<<blocks_for(op.to.size(), kThreads), kThreads, 0, stream.handle()>>>(
        op.from.as<T>(), op.to.as<float>(), op.to.as<float>(), op.to.size(), Plus{});
  });
  TANDEM_CUDA_CHECK_LAUNCH("add to");
}

void run(const ops::Cast& op, CudaStream& stream) {
  if (op.to.size() == 0) return;
  with_storage(op.from.dtype, "cast", [&]<class From>() {
    with_storage(op.to.dtype, "cast", [&]<class To>() {
      cast<<<blocks_for(op.to.size(), kThreads), kThreads, 0, stream.handle()>>>(
          op.from.as<From>(), op.to.as<To>(), op.to.size());
    });
  });
  TANDEM_CUDA_CHECK_LAUNCH("cast");
}

void run(const ops::Sum& op, CudaStream& stream) { sum<false>(op.in, op.out, stream); }
void run(const ops::SquareSum& op, CudaStream& stream) { sum<true>(op.in, op.out, stream); }

void run(const ops::ClipScale& op, CudaStream& stream) {
  clip_scale<<<1, 1, 0, stream.handle()>>>(op.square_sum.as<float>(), op.norm.as<float>(),
                                           op.scale.as<float>(), op.clip, op.grad_factor);
  TANDEM_CUDA_CHECK_LAUNCH("clip scale");
}

}  // namespace tandem::cuda
