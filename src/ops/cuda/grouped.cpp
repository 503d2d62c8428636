// The experts' products: on Hopper's tensor cores where GPU and shape fit, else on cuBLAS.
#include "grouped.h"

#include <numeric>

#include "tandem/base/error.h"
#include "tandem/device/cuda_check.h"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

// The host's numbers say where to write: no further than there are rows.
void check_rows(std::span<const std::int64_t> host_rows, const View& offsets, const View& x) {
  TANDEM_CHECK(static_cast<std::int64_t>(host_rows.size()) == offsets.size() - 1,
               "grouped gemm: rows of {} experts on the host, offsets of {} on the device",
               host_rows.size(), offsets.size() - 1);
  const auto sum = std::accumulate(host_rows.begin(), host_rows.end(), std::int64_t{0});
  TANDEM_CHECK(sum <= x.rows, "grouped gemm: {} rows of experts on the host, {} in x", sum, x.rows);
}

}  // namespace

void zero_idle_experts(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  const std::size_t experts = op.host_rows.size();
  if (experts == 0) return;
  const std::size_t bytes = op.d_w.bytes() / experts;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::size_t first = e;  // neighbours in one go
    while (e < experts && op.host_rows[e] == 0) ++e;
    if (e > first && bytes > 0)
      TANDEM_CUDA_CHECK(cudaMemsetAsync(op.d_w.as<std::byte>() + first * bytes, 0,
                                        (e - first) * bytes, stream.handle()));
  }
}

void run(const ops::GroupedGemm& op, CudaStream& stream) {
  check_rows(op.host_rows, op.offsets, op.x);
  if (op.x.rows > 0 && !hopper_grouped(op, stream)) cublas_grouped(op, stream);
}

void run(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  check_rows(op.host_rows, op.offsets, op.x);
  if (!op.accumulate) zero_idle_experts(op, stream);
  if (op.x.rows > 0 && !hopper_grouped(op, stream)) cublas_grouped(op, stream);
}

}  // namespace tandem::cuda
