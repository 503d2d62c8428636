#include "kernel.cuh"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::uint32_t kMul0 = 0xD2511F53U, kMul1 = 0xCD9E8D57U;   // Salmon et al., SC 2011
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
constexpr int kRounds = 10;

// The first two words of Philox4x32-10, all a pair of normal numbers needs.
__device__ uint2 philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  auto c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  auto c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint32_t high0 = __umulhi(kMul0, c0), low0 = kMul0 * c0;
    const std::uint32_t high1 = __umulhi(kMul1, c2), low1 = kMul1 * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1};
}

// One thread a pair of neighbours of the sequence.
template <class T>
__global__ void __launch_bounds__(kThreads)
    init_normal(T* out, std::int64_t size, std::uint64_t seed, std::uint64_t stream,
                std::int64_t begin, double scale) {
  const std::int64_t pair = begin / 2 + std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t first = 2 * pair - begin;   // -1 where the range begins in the middle
  if (first >= size) return;
  const uint2 words = philox(seed, stream, static_cast<std::uint64_t>(pair));
  constexpr double unit = 1.0 / 4294967296.0;
  const double radius = sqrt(-2.0 * log((words.x + 0.5) * unit));
  double sine, cosine;
  sincospi(2.0 * ((words.y + 0.5) * unit), &sine, &cosine);
  if (first >= 0) out[first] = from_float<T>(static_cast<float>(scale * (radius * cosine)));
  if (first + 1 < size) out[first + 1] = from_float<T>(static_cast<float>(scale * (radius * sine)));
}

}  // namespace

void run(const ops::InitNormal& op, CudaStream& stream) {
  if (op.out.size() == 0) return;
  with_storage(op.out.dtype, "init", [&]<class T>() {
    init_normal<T><<<blocks_for(op.out.size() / 2 + 2, kThreads), kThreads, 0, stream.handle()>>>(
        op.out.as<T>(), op.out.size(), op.seed, op.stream, op.begin, op.scale);
  });
  TANDEM_CUDA_CHECK_LAUNCH("init");
}

}  // namespace tandem::cuda
