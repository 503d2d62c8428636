#include "tandem/data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "numpy_shuffle.h"
#include "tandem/base/error.h"
#include "tandem/base/units.h"
#include "tandem/config/split.h"

namespace tandem {
namespace {

constexpr std::int64_t kExtraToken = 1;  // the label of the last input token
constexpr double kShortFinalEpoch = 0.80;

std::int64_t tokens_in_range(std::span<const std::int32_t> lengths, std::int64_t begin,
                             std::int64_t end) {
  std::int64_t total = 0;
  for (std::int64_t i = begin; i < end; ++i) total += lengths[static_cast<std::size_t>(i)];
  return total;
}

// The smallest number of passes over the range that holds `num_samples` samples.
std::int64_t epochs_needed(std::int64_t tokens, const SampleOrderOptions& options) {
  if (!options.num_samples) return 1;
  std::int64_t wanted = 0;
  if (__builtin_mul_overflow(*options.num_samples, options.seq_len, &wanted) ||
      __builtin_add_overflow(wanted, kExtraToken, &wanted) ||
      wanted > std::numeric_limits<std::int64_t>::max() / 2) {
    throw_error(ExitCode::kUsage,
                "{} samples of {} tokens exceed 64-bit counting; lower train.steps, "
                "train.global_batch or train.seq_len",
                *options.num_samples, options.seq_len);
  }
  const std::int64_t epochs = wanted / tokens + (wanted % tokens != 0);
  const std::int64_t sequences = options.end - options.begin;
  if (epochs > std::numeric_limits<std::int32_t>::max() / sequences) {
    throw_error(
        ExitCode::kBadInput,
        "{} samples of {} tokens need {} epochs of {} sequences with {} tokens, more than "
        "the sample order can hold; lower train.steps, train.global_batch or train.seq_len, or "
        "give more data in data.train or a larger share of data.split",
        *options.num_samples, options.seq_len, epochs, sequences, tokens);
  }
  return std::max<std::int64_t>(epochs, 1);
}

// A last epoch of which less than 80 % is used is shuffled apart, so that its samples come last.
bool is_final_epoch_separate(std::int64_t tokens, std::int64_t epochs,
                             const SampleOrderOptions& options) {
  if (epochs == 1) return false;
  const std::int64_t before = ((epochs - 1) * tokens - kExtraToken) / options.seq_len;
  const std::int64_t from_final = *options.num_samples - before;
  const std::int64_t per_epoch = (tokens - kExtraToken) / options.seq_len;
  return from_final < static_cast<std::int64_t>(kShortFinalEpoch * static_cast<double>(per_epoch));
}

void append_documents(const SampleOrderOptions& options, std::int64_t epochs, NumpyShuffle& shuffle,
                      std::vector<std::int32_t>& index) {
  const std::size_t start = index.size();
  const auto sequences = static_cast<std::size_t>(options.end - options.begin);
  index.resize(start + sequences * static_cast<std::size_t>(epochs));
  for (std::size_t i = start; i < index.size(); ++i) {
    index[i] = static_cast<std::int32_t>(options.begin +
                                         static_cast<std::int64_t>((i - start) % sequences));
  }
  shuffle(std::span(index).subspan(start));
}

// Cuts the shuffled documents, read back to back, into samples that share their border token.
void cut_samples(std::span<const std::int32_t> lengths, std::int64_t seq_len, std::int64_t samples,
                 SampleOrder& order) {
  order.sample_index.reserve(static_cast<std::size_t>(samples) + 1);
  std::int64_t position = 0, offset = 0;
  const auto add = [&] {  // positions are counted, and offsets bounded by lengths, in 32 bits
    order.sample_index.emplace_back(static_cast<std::int32_t>(position),
                                    static_cast<std::int32_t>(offset));
  };
  add();
  const auto length_at = [&](std::int64_t at) {
    return std::int64_t{
        lengths[static_cast<std::size_t>(order.document_index[static_cast<std::size_t>(at)])]};
  };
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::int64_t need = seq_len + kExtraToken;
    while (need > length_at(position) - offset) {
      need -= length_at(position) - offset;
      ++position;
      offset = 0;
    }
    offset += need - kExtraToken;
    add();
  }
}

void shuffle_samples(std::int64_t first_part, std::int64_t samples, NumpyShuffle& shuffle,
                     std::vector<std::uint32_t>& index) {
  index.resize(static_cast<std::size_t>(samples));
  std::iota(index.begin(), index.end(), std::uint32_t{0});
  const auto all = std::span(index);
  shuffle(all.first(static_cast<std::size_t>(first_part)));
  shuffle(all.subspan(static_cast<std::size_t>(first_part)));
}

}  // namespace

SampleOrderSize sample_order_size(std::span<const std::int32_t> lengths,
                                  const SampleOrderOptions& options) {
  TANDEM_CHECK(options.seq_len >= 1, "sample order");
  TANDEM_CHECK(options.begin >= 0, "sample order");
  TANDEM_CHECK(options.end <= static_cast<std::int64_t>(lengths.size()), "sample order");
  const std::int64_t tokens = tokens_in_range(lengths, options.begin, options.end);
  if (tokens <= 0) {
    throw_error(
        ExitCode::kBadInput,
        "sequences [{}, {}) hold no tokens; one sample needs {}: give more data in data.train "
        "or data.valid, or another data.split",
        options.begin, options.end, options.seq_len + kExtraToken);
  }
  SampleOrderSize size{.tokens = tokens, .epochs = epochs_needed(tokens, options)};
  size.samples = (size.epochs * tokens - kExtraToken) / options.seq_len;
  if (size.samples > std::numeric_limits<std::uint32_t>::max()) {
    throw_error(
        ExitCode::kBadInput,
        "{} samples of {} tokens in {} of {} tokens are more than the sample order "
        "can hold, 2^32 - 1; raise train.seq_len, lower train.steps or train.global_batch, or give "
        "less data in data.train or a smaller share of data.split",
        size.samples, options.seq_len, counted(size.epochs, "epoch"), tokens);
  }
  const SampleOrder order;
  using Place = decltype(order.sample_index)::value_type;
  using Number = decltype(order.shuffle_index)::value_type;
  size.bytes = size.samples * static_cast<std::int64_t>(sizeof(Place) + sizeof(Number)) +
               size.epochs * (options.end - options.begin) *
                   static_cast<std::int64_t>(sizeof(order.document_index[0]));
  return size;
}

SampleOrder make_sample_order(std::span<const std::int32_t> lengths,
                              const SampleOrderOptions& options) {
  const auto [tokens, epochs, samples, bytes] = sample_order_size(lengths, options);
  SampleOrder order;
  order.num_epochs = static_cast<int>(epochs);
  order.separate_final_epoch = is_final_epoch_separate(tokens, epochs, options);

  NumpyShuffle shuffle(options.seed);
  if (order.separate_final_epoch) {
    append_documents(options, epochs - 1, shuffle, order.document_index);
    append_documents(options, 1, shuffle, order.document_index);
  } else {
    append_documents(options, epochs, shuffle, order.document_index);
  }
  cut_samples(lengths, options.seq_len, samples, order);
  const std::int64_t first_part = order.separate_final_epoch
                                      ? ((epochs - 1) * tokens - kExtraToken) / options.seq_len
                                      : samples;
  shuffle_samples(first_part, samples, shuffle, order.shuffle_index);
  return order;
}

std::vector<std::pair<std::int64_t, std::int64_t>> split_ranges(const std::string& split,
                                                                std::int64_t num_sequences) {
  const auto weights = split_weights(split);
  if (!weights) {
    throw_error(ExitCode::kUsage,
                "data.split is \"{}\"; give one to three weights in [0, 1e9], not all 0, such "
                "as \"969,30,1\"",
                split);
  }
  const double sum = (*weights)[0] + (*weights)[1] + (*weights)[2];
  const auto boundary = [&](double fraction) {
    // nearbyint rounds half to even, as the reference does.
    const double at = std::nearbyint(fraction * static_cast<double>(num_sequences));
    return std::min(static_cast<std::int64_t>(at), num_sequences);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  double fraction = 0.0;
  std::int64_t begin = 0;
  for (const double weight : *weights) {
    fraction += weight / sum;
    const std::int64_t end = boundary(fraction);
    ranges.emplace_back(begin, end);
    begin = end;
  }
  return ranges;
}

}  // namespace tandem
