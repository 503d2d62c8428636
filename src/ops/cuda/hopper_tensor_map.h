// Tensor maps: what TMA knows of an operand. Private to the grouped products.
#pragma once

#include <cudaTypedefs.h>

#include "tandem/device/cuda_check.h"
#include "tandem/base/dtype.h"

namespace tandem::cuda::hopper {

// `matrices` row-major matrices one after the other, bf16, fp16 or fp32, 16-byte aligned, with rows
// of a multiple of 16 bytes, moved in boxes of box_rows x (128 bytes) with the 128-byte swizzle.
struct Stack {
  void* data;
  DType dtype;
  std::int64_t matrices, rows, cols;
  int box_rows;
};

inline CUtensorMapDataType map_type(DType dtype) {
  if (dtype == DType::kF16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return dtype == DType::kF32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// Makes maps through the driver, which the runtime finds: no link to libcuda.
class MapMaker {
 public:
  MapMaker() {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    TANDEM_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                       cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
      throw_error(ExitCode::kInternal, "the CUDA driver has no cuTensorMapEncodeTiled: update it");
    encode_ = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }

  [[nodiscard]] CUtensorMap operator()(const Stack& s) const {
    const auto size = static_cast<std::int64_t>(size_of(s.dtype));
    const cuuint64_t dims[] = {unsigned64(s.cols), unsigned64(s.rows), unsigned64(s.matrices)};
    const cuuint64_t strides[] = {unsigned64(s.cols * size), unsigned64(s.rows * s.cols * size)};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(128 / size),
                              static_cast<cuuint32_t>(s.box_rows), 1};
    const cuuint32_t steps[] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result = encode_(
        &map, map_type(s.dtype), 3, s.data, dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
      throw_error(ExitCode::kInternal,
                  "cuTensorMapEncodeTiled failed ({}): {} matrices of {} x {} {} at {:#x}",
                  static_cast<int>(result), s.matrices, s.rows, s.cols, name_of(s.dtype),
                  reinterpret_cast<std::uintptr_t>(s.data));
    return map;
  }

 private:
  static cuuint64_t unsigned64(std::int64_t x) { return static_cast<cuuint64_t>(x); }
  PFN_cuTensorMapEncodeTiled_v12000 encode_ = nullptr;
};

}  // namespace tandem::cuda::hopper
