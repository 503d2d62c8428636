// Brings the token ids of a step's micro-batches into device memory, on the stages that need them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/data/batch_source.h"
#include "tandem/device/device.h"
#include "tandem/nn/node_ctx.h"

namespace tandem {

class BatchLoader {
 public:
  // needed: this stage has the embedding or the head.
  BatchLoader(Device& device, const RunConfig& config, int microbatches, bool needed);

  // Micro-batch m holds samples first[m] ... first[m] + micro_batch - 1 of the source. Blocking.
  // The views stay valid until the next call.
  std::span<const BatchView> load(Stream& stream, BatchSource& source,
                                  std::span<const std::int64_t> first);

 private:
  Device& device_;
  const std::int64_t micro_batch_, seq_len_;
  std::vector<std::int32_t> host_tokens_, host_labels_;
  Buffer tokens_, labels_;
  std::vector<BatchView> views_;
};

}  // namespace tandem
