// The experts' products: on Hopper's tensor cores where GPU and shape fit, else on cuBLAS.
#include "grouped.h"
#include "tandem/device/cuda_check.h"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {

void run(const ops::GroupedGemm& op, CudaStream& stream) {
  if (op.x.rows == 0) return;
  if (!hopper_grouped(op, stream)) cublas_grouped(op, stream);
}

void run(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  if (op.x.rows > 0) {
    if (!hopper_grouped(op, stream)) cublas_grouped(op, stream);
  } else if (!op.accumulate && op.d_w.bytes() > 0) {
    TANDEM_CUDA_CHECK(cudaMemsetAsync(op.d_w.data, 0, op.d_w.bytes(), stream.handle()));
  }
}

}  // namespace tandem::cuda
