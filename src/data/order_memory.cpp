#include "order_memory.h"

#include "tandem/base/error.h"
#include "tandem/base/units.h"

namespace tandem {

void OrderMemory::take(const SampleOrderSize& size) {
  const auto bytes = static_cast<double>(size.bytes);
  if (known_ && bytes > left_) throw_no_memory(size);
  left_ -= bytes;
}

void throw_no_memory(const SampleOrderSize& size) {
  throw_error(ExitCode::kMemory,
              "out of host memory for the order of {} samples, which takes {:.2f} GiB on every "
              "rank: give fewer train.steps, a smaller train.global_batch, a longer train.seq_len, "
              "fewer ranks a host, or less data",
              size.samples, static_cast<double>(size.bytes) / kGib);
}

}  // namespace tandem
