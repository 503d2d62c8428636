// Memory for what a benchmark computes with, filled with random values. All of it is taken before
// anything is enqueued, so that a size that does not fit is refused at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/device/device.h"
#include "tandem/ops/ops.h"

namespace tandem::bench {

// Waits until nothing is enqueued, whatever error the stream holds: before what its work uses goes.
void drain(Stream& stream) noexcept;

// Drains a stream when it goes; declared after what the stream's work uses.
class DrainAtEnd {
 public:
  explicit DrainAtEnd(Stream& stream) : stream_(stream) {}
  ~DrainAtEnd() { drain(stream_); }
  DrainAtEnd(const DrainAtEnd&) = delete;
  DrainAtEnd& operator=(const DrainAtEnd&) = delete;

 private:
  Stream& stream_;
};

class Tensors {
 public:
  Tensors(Device& device, Stream& stream) : device_(device), stream_(stream), drain_(stream) {}

  // Normal values with standard deviation `scale`, each tensor another part of one sequence. They
  // are written by fill_all.
  View normal(DType dtype, std::int64_t rows, std::int64_t cols, double scale = 1.0);
  View ints(const std::vector<std::int32_t>& values);  // i32 [n]; blocking
  void fill(View view, double scale = 1.0);            // normal values into memory made elsewhere
  void copy(View from, View to);                       // of equal size
  Buffer& bytes(std::size_t count);                    // uninitialised; lives as long as this
  void fill_all();  // enqueues what normal and fill have promised since the last call

 private:
  Device& device_;
  Stream& stream_;
  std::uint64_t next_ = 1;  // Philox stream of the next tensor
  std::vector<ops::InitNormal> fills_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  DrainAtEnd drain_;  // last: the buffers are freed after it
};

}  // namespace tandem::bench
