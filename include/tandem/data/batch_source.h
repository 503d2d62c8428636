// Where training samples come from. Sample order depends on (files, seed, seq_len, sample number)
// alone, so a run resumes from the number of consumed samples. The megatron kind also depends on
// the number of samples of the whole run (steps x global_batch), as Megatron's own order does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/config/config.h"

namespace tandem {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Writes sample `index` (global, 0-based): seq_len input ids and seq_len next-token labels.
  // Any thread. Throws Error(kBadInput) naming file and offset for ids outside [0, vocab).
  virtual void sample(std::int64_t index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> labels) = 0;
  [[nodiscard]] virtual std::string describe() const = 0;     // one line: files, tokens, epochs
  [[nodiscard]] virtual std::int64_t num_tokens() const = 0;  // of one epoch; 0: unbounded
};

struct BatchSources {
  // valid: nullptr when there is no held-out data, which train.eval_every > 0 does not allow.
  std::unique_ptr<BatchSource> train, valid;
};

// Opens what config.data names. text: bytes of the files as tokens (vocab >= 256), every epoch in
// an order of its own; held-out is data.valid or the last valid_fraction, in file order. megatron:
// .bin/.idx pairs in Megatron's exact order; several prefixes take turns. synthetic: a learnable
// pseudo-random sequence from the seed. A source that is asked for more samples than it holds
// starts again. `host_bytes`: the memory that the orders of samples may take, this rank's share of
// what the host has free; 0: not known. Throws Error(kBadInput) with file, offset, expected and
// found; Error(kUsage) for settings that cannot work; Error(kMemory) for orders that do not fit.
BatchSources open_data(const RunConfig& config, double host_bytes = 0.0);

// Batch order: micro-batch m of data-parallel rank d in step s holds the samples
//   s * global_batch + (m * dp + d) * micro_batch + [0, micro_batch).
std::int64_t first_sample(const RunConfig& config, std::int64_t step, int microbatch, int dp_index);

}  // namespace tandem
