#include "tandem/config/config.h"

#include "tandem/base/error.h"

namespace tandem {

bool ModelConfig::is_moe(int layer) const {
  TANDEM_CHECK(layer >= 0, "layer number");
  TANDEM_CHECK(layer < layers, "layer number");
  if (experts == 0) return false;
  if (!moe_pattern.empty()) return moe_pattern.at(static_cast<std::size_t>(layer)) == 1;
  return layer >= first_k_dense && (layer + 1) % moe_every == 0;
}

int RunConfig::microbatches() const {
  const std::int64_t sequences = std::int64_t{train.micro_batch} * parallel.dp;
  TANDEM_CHECK(sequences > 0, "microbatches() needs a resolved config");
  return static_cast<int>(train.global_batch / sequences);
}

std::int64_t RunConfig::tokens_per_microbatch() const {
  return std::int64_t{train.micro_batch} * train.seq_len;
}

}  // namespace tandem
