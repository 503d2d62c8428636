// Megatron's GPTDataset sample order, from its published description; golden vectors in
// tests/golden/gptdataset.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct SampleOrder {
  std::vector<std::int32_t> document_index;                         // sequence ids
  std::vector<std::pair<std::int64_t, std::int64_t>> sample_index;  // (position, token offset)
  std::vector<std::int64_t> shuffle_index;
  int num_epochs = 1;
  bool separate_final_epoch = false;
};

struct SampleOrderOptions {
  std::int64_t begin = 0, end = 0;  // range of sequence ids of this split
  std::int64_t seq_len = 0;
  std::optional<std::int64_t> num_samples;  // none: one epoch
  std::uint32_t seed = 1234;
};

SampleOrder make_sample_order(std::span<const std::int32_t> lengths,
                              const SampleOrderOptions& options);

// "969,30,1" over n sequences -> begin/end of train, valid, test (round half to even).
std::vector<std::pair<std::int64_t, std::int64_t>> split_ranges(const std::string& split,
                                                                std::int64_t num_sequences);

}  // namespace tandem
