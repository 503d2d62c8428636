// The experts' products on cuBLAS, one product an expert: any dtype, any sizes, any GPU.
//
// By itself cuBLAS chooses a kernel by the sizes of a product. An expert's rows change from step to
// step, so that would load new kernels in the middle of training; loading may wait for the whole
// GPU, and there a lane may be waiting for a rank that waits for this one. So an algorithm is
// chosen once for each kind of product and kept for every number of rows. It cuts no sum into
// parts, which makes it right for all of them and an expert's bits independent of what the others
// got.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "blas_check.h"
#include "grouped.h"
#include "tandem/base/error.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

// Counters of tiles and the like; partial sums would need far more.
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 10;

constexpr std::int64_t kMostRows = 1 << 20;  // of an expert that algorithms are checked for

// Products that share an algorithm: all but the rows of the expert. n, k as in ops.h; alignment, in
// bytes, of every row of every matrix.
struct Kind {
  Form form;
  DType dtype;
  std::int64_t n, k;
  bool accumulate;
  std::uint32_t alignment;
  auto operator<=>(const Kind&) const = default;
};

// One expert's operands: b holds the rows, d is added to or written.
struct Operands {
  const void *a, *b;
  void* d;
};

// What cuBLAS, which is column-major, has to know of a product with `rows` rows: a row-major
// y = x w^T is its y^T = w x^T.
class Shape {
 public:
  Shape(const Kind& kind, std::int64_t rows) {
    const cudaDataType_t in = cuda_type(kind.dtype);
    check_blas(cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul init");
    if (kind.form == Form::kWeight) {
      operations(CUBLAS_OP_N, CUBLAS_OP_T);
      layout(a_, in, kind.k, rows);
      layout(b_, in, kind.n, rows);
      layout(d_, CUDA_R_32F, kind.k, kind.n);
      return;
    }
    const bool forward = kind.form == Form::kForward;
    operations(forward ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N);
    layout(a_, in, forward ? kind.k : kind.n, forward ? kind.n : kind.k);
    layout(b_, in, kind.k, rows);
    layout(d_, in, kind.n, rows);
  }

  // Algorithms that cut no sums, best first. Empty where there is none.
  std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t blas, std::uint32_t alignment) {
    cublasLtMatmulPreferenceOpaque_t wish{};
    check_blas(cublasLtMatmulPreferenceInit(&wish), "preference init");
    set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    const std::uint32_t sums_whole = CUBLASLT_REDUCTION_SCHEME_NONE;
    set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums_whole);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(wish, operand, alignment);
    std::array<cublasLtMatmulHeuristicResult_t, 32> found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(blas, &product_, &a_, &b_, &d_, &d_, &wish,
                                       static_cast<int>(found.size()), found.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> usable;
    for (int i = 0; i < count; ++i)
      if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        usable.push_back(found[static_cast<std::size_t>(i)].algo);
    return usable;
  }

  bool takes(cublasLtHandle_t blas, const cublasLtMatmulAlgo_t& algorithm) {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(blas, &product_, &a_, &b_, &d_, &d_, &algorithm, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kWorkspaceBytes;
  }

  void multiply(cublasLtHandle_t blas, const cublasLtMatmulAlgo_t& algorithm, const Operands& of,
                bool accumulate, void* workspace, CudaStream& stream) {
    const float alpha = 1.0F, beta = accumulate ? 1.0F : 0.0F;
    check_blas(cublasLtMatmul(blas, &product_, &alpha, of.a, &a_, of.b, &b_, &beta, of.d, &d_, of.d,
                              &d_, &algorithm, workspace, kWorkspaceBytes, stream.handle()),
               "cublasLtMatmul");
  }

 private:
  void operations(cublasOperation_t a, cublasOperation_t b) {
    check_blas(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a),
               "matmul trans a");
    check_blas(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b),
               "matmul trans b");
  }
  static void layout(cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t type, std::int64_t rows,
                     std::int64_t cols) {
    check_blas(cublasLtMatrixLayoutInit(&matrix, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(cols), rows),
               "matrix layout init");
  }
  template <class Value>
  static void set(cublasLtMatmulPreferenceOpaque_t& wish, cublasLtMatmulPreferenceAttributes_t what,
                  const Value& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(&wish, what, &value, sizeof value),
               "matmul preference");
  }

  cublasLtMatmulDescOpaque_t product_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, d_{};
};

// What all rows of the matrices are aligned to, in bytes, up to the 16 that are of use.
std::uint32_t alignment_of(std::initializer_list<View> matrices) {
  std::uint64_t bits = 16;
  for (const View& v : matrices)
    bits |= reinterpret_cast<std::uintptr_t>(v.data) |
            static_cast<std::uint64_t>(v.cols) * size_of(v.dtype);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

class GroupedBlas {
 public:
  explicit GroupedBlas(CudaStream& stream) : stream_(stream), memory_(stream) {
    check_blas(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~GroupedBlas() { cublasLtDestroy(handle_); }
  GroupedBlas(const GroupedBlas&) = delete;
  GroupedBlas& operator=(const GroupedBlas&) = delete;

  // operands(expert, first_row): where those of an expert begin.
  template <class Find>
  void multiply(const Kind& kind, std::span<const std::int64_t> host_rows, const Find& operands) {
    const cublasLtMatmulAlgo_t& algorithm = algorithm_for(kind, host_rows);
    void* workspace = memory_.at_least<std::byte>(kWorkspaceBytes);
    std::int64_t first = 0;
    for (std::size_t e = 0; e < host_rows.size(); first += host_rows[e++]) {
      if (host_rows[e] == 0) continue;
      Shape(kind, host_rows[e])
          .multiply(handle_, algorithm, operands(static_cast<std::int64_t>(e), first),
                    kind.accumulate, workspace, stream_);
    }
  }

 private:
  const cublasLtMatmulAlgo_t& algorithm_for(const Kind& kind,
                                            std::span<const std::int64_t> host_rows) {
    const auto known = algorithms_.find(kind);
    if (known != algorithms_.end()) return known->second;
    const auto total = std::accumulate(host_rows.begin(), host_rows.end(), std::int64_t{0});
    const std::int64_t mean =
        std::max<std::int64_t>(1, total / static_cast<std::int64_t>(host_rows.size()));
    // The best one for the usual number of rows, unless it is for few or many rows alone.
    for (const std::int64_t rows : std::array<std::int64_t, 5>{mean, 64, 1024, 16384, kMostRows})
      for (const cublasLtMatmulAlgo_t& algorithm :
           Shape(kind, rows).algorithms(handle_, kind.alignment))
        if (takes_any_rows(kind, algorithm))
          return algorithms_.emplace(kind, algorithm).first->second;
    throw_error(ExitCode::kInternal,
                "grouped gemm: cuBLAS has no algorithm for n {}, k {}, {} that takes any number of "
                "rows: choose a model.hidden and a model.moe_ffn that are multiples of 8",
                kind.n, kind.k, name_of(kind.dtype));
  }

  [[nodiscard]] bool takes_any_rows(const Kind& kind, const cublasLtMatmulAlgo_t& algorithm) const {
    constexpr std::int64_t kRows[] = {1, 2, 3, 8, 17, 100, 1000, 4096, 65536, kMostRows};
    return std::all_of(std::begin(kRows), std::end(kRows), [&](std::int64_t rows) {
      return Shape(kind, rows).takes(handle_, algorithm);
    });
  }

  CudaStream& stream_;
  Workspace memory_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Kind, cublasLtMatmulAlgo_t> algorithms_;
};

// Row `row` of a matrix with rows of `cols` elements.
std::byte* row_of(const View& v, std::int64_t row) {
  return v.as<std::byte>() + row * v.cols * static_cast<std::int64_t>(size_of(v.dtype));
}

}  // namespace

void cublas_grouped(const ops::GroupedGemm& op, CudaStream& stream) {
  const Kind kind{.form = op.trans_w ? Form::kForward : Form::kBackwardInput,
                  .dtype = op.x.dtype,
                  .n = op.y.cols,
                  .k = op.x.cols,
                  .accumulate = false,
                  .alignment = alignment_of({op.x, op.w, op.y})};
  const std::int64_t w_rows = op.trans_w ? kind.n : kind.k;
  stream.local<GroupedBlas>().multiply(kind, op.host_rows, [&](std::int64_t e, std::int64_t first) {
    return Operands{row_of(op.w, e * w_rows), row_of(op.x, first), row_of(op.y, first)};
  });
}

void cublas_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  const Kind kind{.form = Form::kWeight,
                  .dtype = op.x.dtype,
                  .n = op.d_y.cols,
                  .k = op.x.cols,
                  .accumulate = op.accumulate,
                  .alignment = alignment_of({op.x, op.d_y, op.d_w})};
  stream.local<GroupedBlas>().multiply(kind, op.host_rows, [&](std::int64_t e, std::int64_t first) {
    return Operands{row_of(op.x, first), row_of(op.d_y, first), row_of(op.d_w, e * kind.n)};
  });
}

}  // namespace tandem::cuda
