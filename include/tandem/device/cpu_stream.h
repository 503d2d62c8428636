// The CPU stream: one worker thread with a FIFO.
#pragma once

#include "tandem/device/device.h"
#include "tandem/device/workers.h"

namespace tandem {

class CpuStream : public Stream {
 public:
  [[nodiscard]] virtual Workers& workers() = 0;  // for ops launched on this stream
};

}  // namespace tandem
