// The experts' products on Hopper's tensor cores: which shapes they take, and the launches.
#include <optional>

#include "grouped.h"
#include "hopper_kernel.cuh"
#include "hopper_tensor_map.h"

namespace tandem::cuda {
namespace {

using hopper::Problem;
using hopper::Stack;

// What the launches of one stream share, and whether its GPU is a Hopper at all.
class HopperStream {
 public:
  explicit HopperStream(CudaStream& stream) {
    int device = 0, major = 0;
    TANDEM_CUDA_CHECK(cudaGetDevice(&device));
    TANDEM_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (major != 9 || !built()) return;
    allow_shared<bf16>();
    allow_shared<f16>();
    make_map_.emplace();
    stream_ = stream.handle();
    TANDEM_CUDA_CHECK(cudaMallocAsync(&counter_, sizeof(hopper::TileCounter), stream_));
    TANDEM_CUDA_CHECK(cudaMemsetAsync(counter_, 0, sizeof(hopper::TileCounter), stream.handle()));
  }
  ~HopperStream() {
    if (counter_ != nullptr) cudaFreeAsync(counter_, stream_);
  }
  HopperStream(const HopperStream&) = delete;
  HopperStream& operator=(const HopperStream&) = delete;

  [[nodiscard]] bool usable() const { return counter_ != nullptr; }

  template <Form F, class T>
  void launch(const Problem& p, const Stack& left, const Stack& right, const Stack* out, T* y,
              const int* offsets, CudaStream& stream) const {
    const CUtensorMap left_map = (*make_map_)(left), right_map = (*make_map_)(right);
    const CUtensorMap out_map = out != nullptr ? (*make_map_)(*out) : left_map;
    hopper::grouped_product<F, T>
        <<<static_cast<unsigned>(stream.sm_budget()), hopper::kThreads, hopper::kSharedBytes<F>,
           stream.handle()>>>(left_map, right_map, out_map, offsets, p, y, counter_);
    TANDEM_CUDA_CHECK_LAUNCH("grouped product for Hopper");
  }

 private:
  // Built for plain sm_90, without the instructions of sm_90a, the kernel is empty. It then needs
  // next to no registers.
  static bool built() {
    cudaFuncAttributes attributes{};
    TANDEM_CUDA_CHECK(
        cudaFuncGetAttributes(&attributes, hopper::grouped_product<Form::kForward, bf16>));
    return attributes.numRegs > hopper::kProducerRegisters;
  }
  template <class T>
  static void allow_shared() {
    allow_shared<Form::kForward, T>();
    allow_shared<Form::kBackwardInput, T>();
    allow_shared<Form::kWeight, T>();
  }
  template <Form F, class T>
  static void allow_shared() {
    static_assert(hopper::kSharedBytes<F> <= std::size_t{227} * 1024);
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(hopper::grouped_product<F, T>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(hopper::kSharedBytes<F>)));
  }
  std::optional<hopper::MapMaker> make_map_;
  cudaStream_t stream_ = nullptr;
  hopper::TileCounter* counter_ = nullptr;
};

constexpr std::int64_t kMaxExtent = std::int64_t{1}
                                    << 30;  // coordinates are 32 bits, with headroom

// TMA wants 16-byte aligned matrices with rows of a multiple of 16 bytes.
bool fits(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 &&
         v.cols * static_cast<std::int64_t>(size_of(v.dtype)) % 16 == 0 && v.cols > 0 &&
         v.cols < kMaxExtent && v.rows < kMaxExtent;
}

bool fits(std::int64_t experts, const View& a, const View& b, const View& c) {
  const bool sixteen = a.dtype == DType::kBF16 || a.dtype == DType::kF16;
  return sixteen && b.dtype == a.dtype && experts >= 1 && experts <= hopper::kMaxExperts &&
         fits(a) && fits(b) && fits(c);
}

Stack stack(const View& v, std::int64_t matrices, int box_rows) {
  TANDEM_CHECK(v.rows % matrices == 0, "grouped gemm: {} rows for {} matrices", v.rows, matrices);
  return {v.data, v.dtype, matrices, v.rows / matrices, v.cols, box_rows};
}

// body.template operator()<T>() with the 16-bit type that fits() has let through.
template <class Body>
void with_half(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) return body.template operator()<bf16>();
  return body.template operator()<f16>();
}

}  // namespace

bool hopper_grouped(const ops::GroupedGemm& op, CudaStream& stream) {
  const std::int64_t experts = op.offsets.size() - 1;
  if (op.x.rows == 0 || op.y.dtype != op.x.dtype || !fits(experts, op.x, op.w, op.y)) return false;
  const auto& hopper = stream.local<HopperStream>();
  if (!hopper.usable()) return false;
  const Problem problem{.experts = static_cast<int>(experts),
                        .height = 0,
                        .cols = static_cast<int>(op.y.cols),
                        .depth = static_cast<int>(op.x.cols),
                        .accumulate = false};
  const Stack x = stack(op.x, 1, hopper::kTileRows);
  const auto* offsets = op.offsets.as<int>();
  const int box_rows = op.trans_w ? hopper::kTileCols<Form::kForward> : hopper::kBoxRow;
  const Stack w = stack(op.w, experts, box_rows);
  with_half(op.x.dtype, [&]<class T>() {
    auto* y = op.y.as<T>();
    if (op.trans_w)
      hopper.launch<Form::kForward, T>(problem, x, w, nullptr, y, offsets, stream);
    else
      hopper.launch<Form::kBackwardInput, T>(problem, x, w, nullptr, y, offsets, stream);
  });
  return true;
}

bool hopper_grouped(const ops::GroupedGemmWeight& op, CudaStream& stream) {
  const std::int64_t experts = op.offsets.size() - 1;
  if (op.x.rows == 0 || op.d_w.dtype != DType::kF32 || !fits(experts, op.d_y, op.x, op.d_w))
    return false;
  const auto& hopper = stream.local<HopperStream>();
  if (!hopper.usable()) return false;
  const Problem problem{.experts = static_cast<int>(experts),
                        .height = static_cast<int>(op.d_y.cols),
                        .cols = static_cast<int>(op.x.cols),
                        .depth = 0,
                        .accumulate = op.accumulate};
  const Stack d_w = stack(op.d_w, experts, hopper::kBoxRow);
  const Stack d_y = stack(op.d_y, 1, hopper::kBoxRow), x = stack(op.x, 1, hopper::kBoxRow);
  with_half(op.x.dtype, [&]<class T>() {
    T* none = nullptr;
    hopper.launch<Form::kWeight, T>(problem, d_y, x, &d_w, none, op.offsets.as<int>(), stream);
  });
  return true;
}

}  // namespace tandem::cuda
