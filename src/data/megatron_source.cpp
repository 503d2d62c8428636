// .bin/.idx pairs in Megatron's sample order. Several prefixes are blended with equal weights, as
// `--data-path 1 a 1 b` does: Megatron's rule gives the next sample to the set furthest behind its
// share and ties to the first, which for equal shares is to take turns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "data_files.h"
#include "order_memory.h"
#include "sources.h"
#include "tandem/base/error.h"
#include "tandem/base/units.h"
#include "tandem/data/sample_order.h"
#include "tandem/data/token_file.h"

namespace tandem {
namespace {

constexpr double kBlendSurplus = 0.005;  // spare samples per blended set, against rounding

using Files = std::vector<std::shared_ptr<const TokenFile>>;
using Range = std::pair<std::int64_t, std::int64_t>;

// The samples of one range of sequences of one file.
class OrderedFile {
 public:
  OrderedFile(std::shared_ptr<const TokenFile> file, const std::string& prefix, Range range,
              std::int64_t num_samples, const RunConfig& config, OrderMemory& memory)
      : file_(std::move(file)), vocab_(config.model.vocab) {
    const SampleOrderOptions options{.begin = range.first,
                                     .end = range.second,
                                     .seq_len = config.train.seq_len,
                                     .num_samples = num_samples,
                                     .seed = static_cast<std::uint32_t>(config.train.seed)};
    try {
      const SampleOrderSize size = sample_order_size(file_->lengths(), options);
      num_tokens_ = size.tokens;
      memory.take(size);
      order_ = ordered(options, size);
    } catch (const Error& error) {
      throw_error(error.code(), "{}: {}", prefix, error.what());
    }
  }

  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] int num_epochs() const { return order_.num_epochs; }

  // Sample numbers past the end of the order start again.
  void read(std::int64_t sample, std::span<std::int32_t> window) const {
    const auto count = static_cast<std::int64_t>(order_.shuffle_index.size());
    const auto slot =
        static_cast<std::size_t>(order_.shuffle_index[static_cast<std::size_t>(sample % count)]);
    auto [position, offset] = order_.sample_index[slot];
    for (; !window.empty(); ++position, offset = 0) {
      const std::int64_t sequence = order_.document_index[static_cast<std::size_t>(position)];
      const std::int64_t left = file_->lengths()[static_cast<std::size_t>(sequence)] - offset;
      const auto here =
          static_cast<std::size_t>(std::min(left, static_cast<std::int64_t>(window.size())));
      file_->read(sequence, offset, window.first(here));
      check_tokens(sequence, offset, window.first(here));
      window = window.subspan(here);
    }
  }

 private:
  [[nodiscard]] SampleOrder ordered(const SampleOrderOptions& options,
                                    const SampleOrderSize& size) const {
    try {
      return make_sample_order(file_->lengths(), options);
    } catch (const std::bad_alloc&) {
      throw_no_memory(size);
    }
  }

  void check_tokens(std::int64_t sequence, std::int64_t offset,
                    std::span<const std::int32_t> tokens) const {
    const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                  [&](std::int32_t t) { return t < 0 || t >= vocab_; });
    if (bad == tokens.end()) return;
    throw_error(ExitCode::kBadInput,
                "{}: token {} is outside [0, {}); raise model.vocab or tokenize the data again",
                file_->where(sequence, offset + (bad - tokens.begin())), *bad, vocab_);
  }

  std::shared_ptr<const TokenFile> file_;
  int vocab_;
  std::int64_t num_tokens_ = 0;
  SampleOrder order_;
};

class MegatronSource final : public BatchSource {
 public:
  MegatronSource(std::vector<OrderedFile> sets, std::string names, int seq_len)
      : sets_(std::move(sets)), names_(std::move(names)), seq_len_(seq_len) {}

  void sample(std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> labels) override {
    check_sample_request(index, tokens.size(), labels.size(), seq_len_);
    std::vector<std::int32_t> window(tokens.size() + 1);
    const auto sets = static_cast<std::int64_t>(sets_.size());
    sets_[static_cast<std::size_t>(index % sets)].read(index / sets, window);
    split_window(window, tokens, labels);
  }

  std::string describe() const override {
    int epochs = 0;
    for (const OrderedFile& set : sets_) epochs = std::max(epochs, set.num_epochs());
    return fmt::format("megatron: {}, {} tokens, samples of {}, {} epoch{} at most", names_,
                       num_tokens(), seq_len_, epochs, epochs == 1 ? "" : "s");
  }

  std::int64_t num_tokens() const override {
    std::int64_t total = 0;
    for (const OrderedFile& set : sets_) total += set.num_tokens();
    return total;
  }

 private:
  std::vector<OrderedFile> sets_;
  std::string names_;
  int seq_len_;
};

Files open_all(const char* key_name, const std::vector<std::string>& prefixes) {
  const DataKey key{key_name, prefixes, ".bin"};
  require_no_weights(key,
                     "list the prefixes alone, as in [\"a\",\"b\"], to draw from each in turn, or "
                     "tokenize one pair that holds their documents in this ratio");
  Files files;
  open_each(key, [&](const std::string& prefix) { files.push_back(TokenFile::open(prefix)); });
  return files;
}

std::vector<Range> whole(const Files& files) {
  std::vector<Range> ranges;
  for (const auto& file : files) ranges.emplace_back(0, file->num_sequences());
  return ranges;
}

// Samples each of `sets` blended files must provide for `num_samples` in all.
std::int64_t samples_per_set(std::int64_t num_samples, std::size_t sets) {
  if (sets == 1) return num_samples;
  const double share =
      std::ceil(static_cast<double>(num_samples) * (1.0 / static_cast<double>(sets)));
  return static_cast<std::int64_t>(std::ceil(share * (1.0 + kBlendSurplus)));
}

// Blends the files whose range holds a sequence; nullptr if none does.
std::unique_ptr<BatchSource> make_source(const Files& files,
                                         const std::vector<std::string>& prefixes,
                                         const std::vector<Range>& ranges, std::int64_t num_samples,
                                         const RunConfig& config, OrderMemory& memory) {
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (ranges[i].first < ranges[i].second) used.push_back(i);
  }
  if (used.empty()) return nullptr;
  const std::int64_t each = samples_per_set(num_samples, used.size());
  std::vector<OrderedFile> sets;
  std::vector<std::string> names;
  for (const std::size_t i : used) {
    sets.emplace_back(files[i], prefixes[i], ranges[i], each, config, memory);
    names.push_back(prefixes[i]);
  }
  return std::make_unique<MegatronSource>(
      std::move(sets), fmt::format("{}", fmt::join(names, ", ")), config.train.seq_len);
}

void check_settings(const RunConfig& config) {
  if (config.data.train.empty()) {
    throw_error(ExitCode::kUsage,
                "data.train names no prefix; data.kind \"megatron\" needs one or more");
  }
  if (config.train.seed > std::numeric_limits<std::uint32_t>::max()) {
    throw_error(
        ExitCode::kUsage,
        "train.seed is {}; data.kind \"megatron\" needs a seed below 2^32, as Megatron does",
        config.train.seed);
  }
}

std::int64_t training_samples(const TrainConfig& train) {
  return std::max<std::int64_t>(1, std::int64_t{train.steps} * train.global_batch);
}

// Those of one evaluation: all take the same, whatever the length of the run.
std::int64_t validation_samples(const RunConfig& config) {
  return std::int64_t{config.train.eval_batches} * config.train.micro_batch *
         std::max(config.parallel.dp, 1);
}

// Documents are held out whole: of few of them a small part of the ratio gets none.
void require_documents(const Files& files, const std::vector<Range>& ranges,
                       const RunConfig& config) {
  if (!config.data.valid.empty() || config.train.eval_every == 0) return;
  std::int64_t all = 0, held_out = 0, most = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    all += files[i]->num_sequences();
    most = std::max(most, files[i]->num_sequences());
    held_out += ranges[i].second - ranges[i].first;
  }
  if (held_out > 0) return;
  throw_error(ExitCode::kUsage,
              "train.eval_every = {}, but of {} data.split={} leaves 0 held out: give "
              "data.valid{}, or set train.eval_every=0",
              config.train.eval_every, counted(all, "document"), config.data.split,
              most > 1 ? fmt::format(" or data.split={},1,0", most - 1) : "");
}

// The held-out samples; nullptr where there are none, which is an error only where they are asked
// for.
std::unique_ptr<BatchSource> held_out(const Files& files, const std::vector<std::string>& prefixes,
                                      const std::vector<Range>& ranges, const RunConfig& config,
                                      OrderMemory& memory) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::int64_t s = ranges[i].first; s < ranges[i].second; ++s)
      tokens += files[i]->lengths()[static_cast<std::size_t>(s)];
  require_documents(files, ranges, config);
  const bool wanted = !config.data.valid.empty() || config.train.eval_every > 0;
  if (wanted)
    require_one_sample(
        prefixes.front(), tokens, "tokens for validation", config.train.seq_len,
        config.data.valid.empty()
            ? "give data.valid, more data, a larger second weight of data.split, or set "
              "train.eval_every to 0"
            : "give more data in data.valid, or a smaller train.seq_len");
  if (tokens > config.train.seq_len)
    return make_source(files, prefixes, ranges, validation_samples(config), config, memory);
  return nullptr;
}

}  // namespace

BatchSources open_megatron(const RunConfig& config, double host_bytes) {
  check_settings(config);
  const std::vector<std::string>& train_names = config.data.train;
  const std::vector<std::string>& valid_names =
      config.data.valid.empty() ? train_names : config.data.valid;
  const bool split_train = config.data.valid.empty();
  const Files train = open_all("data.train", train_names);
  const Files valid = split_train ? train : open_all("data.valid", valid_names);

  std::vector<Range> train_ranges = whole(train), valid_ranges = whole(valid);
  if (split_train) {
    for (std::size_t i = 0; i < train.size(); ++i) {
      const auto ranges = split_ranges(config.data.split, train[i]->num_sequences());
      train_ranges[i] = ranges[0];
      valid_ranges[i] = ranges[1];
    }
  }
  OrderMemory memory(host_bytes);
  BatchSources sources;
  sources.train =
      make_source(train, train_names, train_ranges, training_samples(config.train), config, memory);
  sources.valid = held_out(valid, valid_names, valid_ranges, config, memory);
  if (sources.train == nullptr) {
    throw_error(ExitCode::kBadInput,
                "{}: data.split \"{}\" leaves no sequence for training; one sample needs {} tokens",
                train_names.front(), config.data.split, config.train.seq_len + 1);
  }
  return sources;
}

}  // namespace tandem
