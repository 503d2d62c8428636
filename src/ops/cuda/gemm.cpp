// Dense products on cuBLAS, fp32 accumulation, no TF32.
#include "blas_check.h"
#include "tandem/base/error.h"
#include "tandem/device/cuda_check.h"
#include "tandem/ops/cuda.h"

namespace tandem::cuda {
namespace {

// The cuBLAS handle of one stream, with a workspace of its own: which kernels run, and so the
// bits, do not depend on other streams.
class Blas {
 public:
  explicit Blas(CudaStream& stream) : stream_(stream.handle()) {
    check_blas(cublasCreate(&handle_), "cublasCreate");
    check_blas(cublasSetStream(handle_, stream.handle()), "cublasSetStream");
    TANDEM_CUDA_CHECK(cudaMallocAsync(&workspace_, kWorkspaceBytes, stream.handle()));
    check_blas(cublasSetWorkspace(handle_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
  }
  ~Blas() {
    cublasDestroy(handle_);
    cudaFreeAsync(workspace_, stream_);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  [[nodiscard]] cublasHandle_t handle() const { return handle_; }

 private:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what Hopper asks for
  cudaStream_t stream_;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

// cuBLAS is column-major: a row-major c = op(a) op(b) is its c^T = op(b)^T op(a)^T.
void run(const ops::Gemm& op, CudaStream& stream) {
  const std::int64_t m = op.c.rows, n = op.c.cols;
  const std::int64_t k = op.trans_a ? op.a.rows : op.a.cols;
  TANDEM_CHECK((op.trans_a ? op.a.cols : op.a.rows) == m, "gemm: rows of a");
  TANDEM_CHECK((op.trans_b ? op.b.rows : op.b.cols) == n, "gemm: columns of b");
  TANDEM_CHECK((op.trans_b ? op.b.cols : op.b.rows) == k, "gemm: inner dimension of b");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!op.accumulate)
      TANDEM_CUDA_CHECK(cudaMemsetAsync(op.c.data, 0, op.c.bytes(), stream.handle()));
    return;
  }
  const cublasHandle_t blas = stream.local<Blas>().handle();
  // Where the inner dimension is cut, partial sums would otherwise be rounded to the output's type,
  // and those of fp16 may overflow where the sum does not.
  check_blas(cublasSetMathMode(blas, op.c.dtype == DType::kF16
                                         ? CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
                                         : CUBLAS_DEFAULT_MATH),
             "cublasSetMathMode");
  const float alpha = 1.0F, beta = op.accumulate ? 1.0F : 0.0F;
  check_blas(
      cublasGemmEx(blas, op.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                   op.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, static_cast<int>(n), static_cast<int>(m),
                   static_cast<int>(k), &alpha, op.b.data, cuda_type(op.b.dtype),
                   static_cast<int>(op.b.cols), op.a.data, cuda_type(op.a.dtype),
                   static_cast<int>(op.a.cols), &beta, op.c.data, cuda_type(op.c.dtype),
                   static_cast<int>(n), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "cublasGemmEx");
}

}  // namespace tandem::cuda
