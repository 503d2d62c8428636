#include "tensors.h"

#include "tandem/ops/launch.h"

namespace tandem::bench {
namespace {

constexpr std::uint64_t kSeed = 1234;

}  // namespace

Buffer& Tensors::bytes(std::size_t count) {
  buffers_.push_back(std::make_unique<Buffer>(device_.alloc(count, "benchmark data")));
  return *buffers_.back();
}

void Tensors::fill(View view, double scale) {
  if (view.size() == 0) return;
  launch(stream_, ops::InitNormal{view, kSeed, next_++, 0, scale});
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
