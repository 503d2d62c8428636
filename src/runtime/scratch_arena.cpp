#include "tandem/runtime/scratch_arena.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kSmallestBlock = 64 << 10;

}  // namespace

View ScratchArena::take(DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::size_t bytes =
      (static_cast<std::size_t>(rows * cols) * size_of(dtype) + kAlign - 1) / kAlign * kAlign;
  while (block_ < blocks_.size() && offset_ + bytes > blocks_[block_].bytes()) {
    ++block_;
    offset_ = 0;
  }
  if (block_ == blocks_.size())
    blocks_.push_back(device_.alloc(std::max(bytes, kSmallestBlock), "scratch of lane " + lane_));
  auto* data = static_cast<std::byte*>(blocks_[block_].data()) + offset_;
  offset_ += bytes;
  taken_ += bytes;
  peak_ = std::max(peak_, taken_);
  return {data, dtype, rows, cols};
}

void ScratchArena::next_node() {
  block_ = offset_ = taken_ = 0;
}

void ScratchArena::collect() {
  if (blocks_.size() <= 1) return;
  blocks_.clear();
  blocks_.push_back(device_.alloc(peak_ + peak_ / 4, "scratch of lane " + lane_));
  next_node();
}

std::size_t ScratchArena::bytes() const {
  std::size_t sum = 0;
  for (const Buffer& block : blocks_) sum += block.bytes();
  return sum;
}

}  // namespace tandem
