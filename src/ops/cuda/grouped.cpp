// The experts' products: on Hopper's tensor cores where GPU and shape fit, else on cuBLAS.
#include "grouped.h"

#include "tandem/device/cuda_check.h"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {

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
  if (op.x.rows > 0 && !hopper_grouped(op, stream)) cublas_grouped(op, stream);
}

void run(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  if (!op.accumulate) zero_idle_experts(op, stream);
  if (op.x.rows > 0 && !hopper_grouped(op, stream)) cublas_grouped(op, stream);
}

}  // namespace tandem::cuda
