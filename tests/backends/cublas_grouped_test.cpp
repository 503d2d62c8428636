// The experts' products as GPUs other than Hopper have them, on whatever GPU is here.
#include "grouped_check.h"
#include "ops/cuda/grouped.h"

namespace tandem::test {
namespace {

class CublasBackend : public CudaBackend {
 public:
  void run(const ops::GroupedGemm& op) { cuda::cublas_grouped(op, stream()); }
  void run(const ops::GroupedGemmWeight& op) {
    if (!op.accumulate) cuda::zero_idle_experts(op, stream());
    cuda::cublas_grouped(op, stream());
  }
};

bool no_gpu() {
  const bool none = visible_cuda_devices() == 0;
  if (none) WARN("no CUDA device is visible: skipped");
  return none;
}

// Zeros of all operands of one layer's products; nobody looks at the results.
struct Layer {
  Layer(CublasBackend& backend, DType dtype, std::int64_t rows, std::int64_t n, std::int64_t k)
      : x(backend.put(tensor(dtype, rows, k))),
        y(backend.put(tensor(dtype, rows, n))),
        w(backend.put(tensor(dtype, kExperts * n, k))),
        d_w(backend.put(tensor(DType::kF32, kExperts * n, k))),
        offsets(backend.put(tensor(DType::kI32, kExperts + 1, 1))) {}

  void run(CublasBackend& backend, const std::vector<std::int64_t>& rows) const {
    backend.run(ops::GroupedGemm{x, w, y, offsets, rows, true});
    backend.run(ops::GroupedGemm{y, w, x, offsets, rows, false});
    for (const bool accumulate : {false, true})
      backend.run(ops::GroupedGemmWeight{y, x, d_w, offsets, rows, accumulate});
  }

  static constexpr std::int64_t kExperts = 4;
  View x, y, w, d_w, offsets;
};

TEST_CASE("grouped gemm on cublas") {
  if (no_gpu()) return;
  CublasBackend backend;
  for (const DType dtype : kStorage)
    for (const auto& [n, k] :
         {std::pair{9, 13}, {70, 90}, {200, 136}, {256, 64}, {1, 1}, {6, 10}}) {
      check_grouped(backend, {5, 0, 1, 19}, n, k, dtype);
      check_grouped(backend, {0, 0, 0}, n, k, dtype);
      check_grouped(backend, {40, 520, 1, 260}, n, k, dtype);
      check_grouped(backend, {7}, n, k, dtype);
    }
}

TEST_CASE("an expert's rows on cublas do not depend on what the others got") {
  if (no_gpu()) return;
  CublasBackend backend;
  for (const DType dtype : kStorage) {
    Random random(3);
    const std::int64_t n = 96, k = 160, rows = 300;
    const View x = backend.put(random.values(dtype, rows, k));
    const View w = backend.put(random.values(dtype, 2 * n, k));
    const auto first_rows = [&](std::vector<std::int64_t> counts) {
      const View y = backend.room(dtype, rows, n);
      backend.run(ops::GroupedGemm{x, w, y, backend.put(offsets_of(counts)), counts, true});
      return backend.get(y.slice(0, 20)).v;
    };
    const Values alone = first_rows({20, 0});
    CHECK(alone == first_rows({20, 280}));
    CHECK(alone == first_rows({150, 150}));
  }
}

// Loading a kernel may wait for the whole GPU. In training a lane may then be waiting for a rank
// that waits for this one.
TEST_CASE("new numbers of rows on cublas do not wait for other streams") {
  if (no_gpu()) return;
  constexpr double kLongUs = 2e6;  // of tens of milliseconds that the products take
  constexpr std::int64_t kRows = 32768;
  CublasBackend backend;
  const auto other = backend.device().make_stream("other", 0);
  const auto end = backend.device().make_event();
  backend.device().delay(*other, 0);  // has its own first use
  for (const DType dtype : kStorage)
    for (const auto& [n, k] : {std::pair{384, 256}, {90, 70}, {13, 9}}) {
      CAPTURE(name_of(dtype), n, k);
      const Layer layer(backend, dtype, kRows, n, k);
      layer.run(backend, {8192, 8192, 8192, 8192});
      backend.stream().sync();
      backend.device().delay(*other, kLongUs);
      other->record(*end);
      for (const std::int64_t rows :
           {1, 2, 3, 7, 8, 16, 31, 33, 64, 100, 127, 129, 500, 777, 1000, 5000, 10000})
        layer.run(backend, {rows, 0, rows + 1, kRows - 2 * rows - 1});
      backend.stream().sync();
      CHECK_FALSE(end->reached());
      other->sync();
    }
}

}  // namespace
}  // namespace tandem::test
