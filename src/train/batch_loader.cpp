#include "tandem/train/batch_loader.h"

#include <new>

#include "tandem/base/error.h"

namespace tandem {

BatchLoader::BatchLoader(Device& device, const RunConfig& config, int microbatches, bool needed)
    : device_(device),
      micro_batch_(config.train.micro_batch),
      seq_len_(config.train.seq_len),
      views_(static_cast<std::size_t>(microbatches)) {
  if (!needed) return;
  const std::int64_t tokens = config.tokens_per_microbatch();
  const auto ids = static_cast<std::size_t>(microbatches * tokens);
  try {
    host_tokens_.resize(ids);
    host_labels_.resize(ids);
  } catch (const std::bad_alloc&) {
    throw_error(ExitCode::kMemory,
                "out of host memory for {} micro-batches of {} tokens; give a smaller "
                "train.global_batch or train.eval_batches, or more ranks",
                microbatches, tokens);
  }
  tokens_ = device_.alloc(ids * sizeof(std::int32_t), "token ids");
  labels_ = device_.alloc(ids * sizeof(std::int32_t), "labels");
  const View all_tokens{tokens_.data(), DType::kI32, microbatches * tokens, 1};
  const View all_labels{labels_.data(), DType::kI32, microbatches * tokens, 1};
  for (int m = 0; m < microbatches; ++m)
    views_[static_cast<std::size_t>(m)] = {all_tokens.slice(m * tokens, tokens),
                                           all_labels.slice(m * tokens, tokens)};
}

std::span<const BatchView> BatchLoader::load(Stream& stream, BatchSource& source,
                                             std::span<const std::int64_t> first) {
  if (host_tokens_.empty()) return views_;
  const auto length = static_cast<std::size_t>(seq_len_);
  std::size_t at = 0;
  for (const std::int64_t begin : first)
    for (std::int64_t i = 0; i < micro_batch_; ++i, at += length)
      source.sample(begin + i, std::span(host_tokens_).subspan(at, length),
                    std::span(host_labels_).subspan(at, length));
  device_.copy(stream, tokens_.data(), host_tokens_.data(), tokens_.bytes());
  device_.copy(stream, labels_.data(), host_labels_.data(), labels_.bytes());
  // hazard: the copies out of host memory before the next load overwrites it
  stream.sync();
  return views_;
}

}  // namespace tandem
