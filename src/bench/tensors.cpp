#include "tensors.h"

#include "tandem/ops/launch.h"

namespace tandem::bench {
namespace {

constexpr std::uint64_t kSeed = 1234;

}  // namespace

void drain(Stream& stream) noexcept {
  try {
    // hazard: the stream's work before the memory it uses is freed
    stream.sync();
  } catch (...) {
    // An error is on its way already, or whoever reads the results would have met this one.
  }
}

Buffer& Tensors::bytes(std::size_t count) {
  buffers_.push_back(std::make_unique<Buffer>(device_.alloc(count, "benchmark data")));
  return *buffers_.back();
}

void Tensors::fill(View view, double scale) {
  if (view.size() == 0) return;
  fills_.push_back(ops::InitNormal{view, kSeed, next_++, 0, scale});
}

void Tensors::fill_all() {
  for (const ops::InitNormal& op : fills_) launch(stream_, op);
  fills_.clear();
}

void Tensors::copy(View from, View to) {
  device_.copy(stream_, to.data, from.data, from.bytes());
}

View Tensors::normal(DType dtype, std::int64_t rows, std::int64_t cols, double scale) {
  View view{nullptr, dtype, rows, cols};
  view.data = bytes(view.bytes()).data();
  fill(view, scale);
  return view;
}

View Tensors::ints(const std::vector<std::int32_t>& values) {
  View view{nullptr, DType::kI32, static_cast<std::int64_t>(values.size()), 1};
  view.data = bytes(view.bytes()).data();
  device_.copy(stream_, view.data, values.data(), view.bytes());
  // hazard: the copy before the caller's memory goes
  stream_.sync();
  return view;
}

}  // namespace tandem::bench
