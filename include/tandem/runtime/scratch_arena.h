// ScratchArena: bump memory for one lane. Lanes are FIFOs, so the next node may reuse what the
// last one took, even while the last one is still running.
#pragma once

#include <vector>

#include "tandem/device/device.h"
#include "tandem/nn/node_ctx.h"

namespace tandem {

class ScratchArena : public Scratch {
 public:
  ScratchArena(Device& device, std::string lane) : device_(device), lane_(std::move(lane)) {}

  View take(DType dtype, std::int64_t rows, std::int64_t cols) override;
  void next_node();  // everything taken so far may be overwritten by later work of the lane
  void collect();    // after a step, lanes idle: one block large enough replaces several
  [[nodiscard]] std::size_t bytes() const;

 private:
  Device& device_;
  std::string lane_;
  std::vector<Buffer> blocks_;
  std::size_t block_ = 0, offset_ = 0, taken_ = 0, peak_ = 0;
};

}  // namespace tandem
