// Memory for what a benchmark computes with, filled with random values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/device/device.h"
#include "tandem/ops/ops.h"

namespace tandem::bench {

class Tensors {
 public:
  Tensors(Device& device, Stream& stream) : device_(device), stream_(stream) {}

  // Normal values with standard deviation `scale`, each tensor another part of one sequence.
  View normal(DType dtype, std::int64_t rows, std::int64_t cols, double scale = 1.0);
  View ints(const std::vector<std::int32_t>& values);  // i32 [n]; blocking
  void fill(View view, double scale = 1.0);            // normal values into memory made elsewhere
  void copy(View from, View to);                       // of equal size
  Buffer& bytes(std::size_t count);                    // uninitialised; lives as long as this

 private:
  Device& device_;
  Stream& stream_;
  std::uint64_t next_ = 1;  // Philox stream of the next tensor
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace tandem::bench
