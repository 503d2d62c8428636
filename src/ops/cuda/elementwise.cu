#include <type_traits>

#include "kernel.cuh"
#include "tandem/ops/cuda.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumBlocks = 256;   // fixed, so that sums have one order on every GPU

// out = a + b, N elements a thread.
template <class A, class B, int N>
__global__ void __launch_bounds__(kThreads)
    add(const Pack<A, N>* a, const Pack<B, N>* b, Pack<B, N>* out, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= packs) return;
  const Pack<A, N> x = a[i];
  const Pack<B, N> y = b[i];
  Pack<B, N> sum;
#pragma unroll
  for (int j = 0; j < N; ++j) sum.v[j] = from_float<B>(to_float(x.v[j]) + to_float(y.v[j]));
  out[i] = sum;
}

template <class From, class To, int N>
__global__ void __launch_bounds__(kThreads)
    cast(const Pack<From, N>* from, Pack<To, N>* to, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= packs) return;
  const Pack<From, N> x = from[i];
  Pack<To, N> y;
#pragma unroll
  for (int j = 0; j < N; ++j) y.v[j] = from_float<To>(to_float(x.v[j]));
  to[i] = y;
}

// to[row] = [hi, lo] of from[row].
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_halves(const float* from, T* to, std::int64_t size, int cols) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  const T hi = from_float<T>(from[i]);
  T* row = to + i / cols * 2 * cols;
  row[i % cols] = hi;
  row[cols + i % cols] = from_float<T>(from[i] - to_float(hi));
}

// body.template operator()<N>(): elements per access of two types side by side.
template <class A, class B, class Body, class... Pointers>
void with_common_pack(std::int64_t size, const Body& body, Pointers... pointers) {
  using Wider = std::conditional_t<(sizeof(A) > sizeof(B)), A, B>;
  with_pack<Wider>(size, body, pointers...);
}

template <class A, class B>
void add_views(const View& a, const View& b, const View& out, CudaStream& stream) {
  with_common_pack<A, B>(
      out.size(),
      [&]<int N>() {
        add<A, B, N><<<blocks_for(out.size() / N, kThreads), kThreads, 0, stream.handle()>>>(
            a.as<Pack<A, N>>(), b.as<Pack<B, N>>(), out.as<Pack<B, N>>(), out.size() / N);
      },
      a.data, b.data, out.data);
  TANDEM_CUDA_CHECK_LAUNCH("add");
}

template <bool Square>
__global__ void __launch_bounds__(kThreads) sum_parts(const float* in, double* parts, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{kSumBlocks} * kThreads) {
    const double x = in[i];
    sum += Square ? x * x : x;
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
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
  with_storage(op.out.dtype, "add",
               [&]<class T>() { add_views<T, T>(op.a, op.b, op.out, stream); });
}

void run(const ops::AddTo& op, CudaStream& stream) {
  if (op.to.size() == 0) return;
  with_storage(op.from.dtype, "add to",
               [&]<class T>() { add_views<T, float>(op.from, op.to, op.to, stream); });
}

void run(const ops::Cast& op, CudaStream& stream) {
  const std::int64_t size = op.to.size();
  if (size == 0) return;
  with_storage(op.from.dtype, "cast", [&]<class From>() {
    with_storage(op.to.dtype, "cast", [&]<class To>() {
      with_common_pack<From, To>(
          size,
          [&]<int N>() {
            cast<From, To, N><<<blocks_for(size / N, kThreads), kThreads, 0, stream.handle()>>>(
                op.from.as<Pack<From, N>>(), op.to.as<Pack<To, N>>(), size / N);
          },
          op.from.data, op.to.data);
    });
  });
  TANDEM_CUDA_CHECK_LAUNCH("cast");
}

void run(const ops::SplitHalves& op, CudaStream& stream) {
  if (op.from.size() == 0) return;
  with_storage(op.to.dtype, "split halves", [&]<class T>() {
    split_halves<<<blocks_for(op.from.size(), kThreads), kThreads, 0, stream.handle()>>>(
        op.from.as<float>(), op.to.as<T>(), op.from.size(), static_cast<int>(op.from.cols));
  });
  TANDEM_CUDA_CHECK_LAUNCH("split halves");
}

void run(const ops::Sum& op, CudaStream& stream) { sum<false>(op.in, op.out, stream); }
void run(const ops::SquareSum& op, CudaStream& stream) { sum<true>(op.in, op.out, stream); }

void run(const ops::ClipScale& op, CudaStream& stream) {
  clip_scale<<<1, 1, 0, stream.handle()>>>(op.square_sum.as<float>(), op.norm.as<float>(),
                                           op.scale.as<float>(), op.clip, op.grad_factor);
  TANDEM_CUDA_CHECK_LAUNCH("clip scale");
}

}  // namespace tandem::cuda
