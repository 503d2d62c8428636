// The three kinds of sources behind open_data. All are immutable after opening: any thread.
#pragma once

#include "tandem/data/batch_source.h"

namespace tandem {

BatchSources open_text(const RunConfig& config);
BatchSources open_megatron(const RunConfig& config, double host_bytes);  // 0: not known
BatchSources open_synthetic(const RunConfig& config);

// Input ids t[0, n) and labels t[1, n] from a window of n + 1 tokens.
void split_window(std::span<const std::int32_t> window, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> labels);

// Throws Error(kBadInput) where `size` of `what`, such as "bytes for training", make no sample.
void require_one_sample(const std::string& names, std::int64_t size, const char* what, int seq_len,
                        const char* remedy);

// Checks sample()'s arguments against the sequence length.
void check_sample_request(std::int64_t index, std::size_t tokens, std::size_t labels, int seq_len);

}  // namespace tandem
