// Megatron's GPTDataset sample order, from its published description; golden vectors in
// tests/golden/gptdataset.json. It is held whole, 12 bytes a sample and 4 bytes a sequence and epoch,
// for as many epochs as the run needs and no less than one.
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
  std::vector<std::pair<std::int32_t, std::int32_t>> sample_index;  // (position, token offset)
  std::vector<std::uint32_t> shuffle_index;
  int num_epochs = 1;
  bool separate_final_epoch = false;
};

struct SampleOrderOptions {
  std::int64_t begin = 0, end = 0;  // range of sequence ids of this split
  std::int64_t seq_len = 0;
  std::optional<std::int64_t> num_samples;  // none: one epoch
  std::uint32_t seed = 1234;
};

// What an order will take, known before any of it is made.
struct SampleOrderSize {
  std::int64_t tokens = 0, epochs = 1, samples = 0;  // tokens: of one epoch
  std::int64_t bytes = 0;
};

// Both throw Error(kBadInput) for ranges without tokens and for more epochs than 2^31 sequences or
// more than 2^32 - 1 samples hold, Error(kUsage) where 64 bits cannot count the tokens.
SampleOrderSize sample_order_size(std::span<const std::int32_t> lengths,
                                  const SampleOrderOptions& options);
SampleOrder make_sample_order(std::span<const std::int32_t> lengths,
                              const SampleOrderOptions& options);

// "969,30,1" over n sequences -> begin/end of train, valid, test (round half to even).
std::vector<std::pair<std::int64_t, std::int64_t>> split_ranges(const std::string& split,
                                                                std::int64_t num_sequences);

}  // namespace tandem
