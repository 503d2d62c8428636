// Host memory for Megatron's sample orders. Memory is promised freely and taken when it is written
// to: asked for first, too much of it is an error and not the end of some process.
#pragma once

#include "tandem/data/sample_order.h"

namespace tandem {

class OrderMemory {
 public:
  explicit OrderMemory(double bytes) : known_(bytes > 0.0), left_(bytes) {}  // 0: not known

  // Counts an order in that is about to be made. Throws Error(kMemory) where it does not fit.
  void take(const SampleOrderSize& size);

 private:
  bool known_;
  double left_;
};

// Throws Error(kMemory): there is no memory for an order of this size.
[[noreturn]] void throw_no_memory(const SampleOrderSize& size);

}  // namespace tandem
