#include "tandem/data/batch_source.h"

#include <algorithm>

#include "sources.h"
#include "tandem/base/error.h"

namespace tandem {

void split_window(std::span<const std::int32_t> window, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> labels) {
  std::copy_n(window.begin(), tokens.size(), tokens.begin());
  std::copy_n(window.begin() + 1, labels.size(), labels.begin());
}

void check_sample_request(std::int64_t index, std::size_t tokens, std::size_t labels, int seq_len) {
  TANDEM_CHECK(index >= 0, "sample number");
  TANDEM_CHECK(tokens == static_cast<std::size_t>(seq_len), "input ids of sample {}", index);
  TANDEM_CHECK(labels == static_cast<std::size_t>(seq_len), "labels of sample {}", index);
}

void require_one_sample(const std::string& names, std::int64_t size, const char* what, int seq_len,
                        const char* remedy) {
  if (size > seq_len) return;
  throw_error(ExitCode::kBadInput,
              "{}: {} {}, but one sample needs {} (train.seq_len {} and one label); {}", names,
              size, what, seq_len + 1, seq_len, remedy);
}

BatchSources open_data(const RunConfig& config, double host_bytes) {
  switch (config.data.kind) {
    case DataKind::kText:
      return open_text(config);
    case DataKind::kMegatron:
      return open_megatron(config, host_bytes);
    case DataKind::kSynthetic:
      return open_synthetic(config);
  }
  throw_error(ExitCode::kInternal, "data.kind {} is unknown", static_cast<int>(config.data.kind));
}

std::int64_t first_sample(const RunConfig& config, std::int64_t step, int microbatch,
                          int dp_index) {
  const std::int64_t in_step = std::int64_t{microbatch} * config.parallel.dp + dp_index;
  return step * config.train.global_batch + in_step * config.train.micro_batch;
}

}  // namespace tandem
