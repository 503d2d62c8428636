// Bytes of text files as tokens. The files, joined in the order given, are cut into windows of
// seq_len + 1 bytes that share their border byte; every epoch visits each window once.
#include <algorithm>
#include <cmath>

#include "data_files.h"
#include "input_file.h"
#include "permutation.h"
#include "sources.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr int kByteVocab = 256;

class Corpus {
 public:
  explicit Corpus(const DataKey& key) {
    require_no_weights(key, "list the files alone, as in [\"a\",\"b\"], to read them as one text");
    open_each(key, [&](const std::string& path) {
      files_.emplace_back(path);
      begins_.push_back(size_);
      size_ += files_.back().size();
    });
  }

  [[nodiscard]] std::int64_t size() const { return size_; }

  [[nodiscard]] std::string names() const {
    const std::string first = files_.front().path();
    return files_.size() == 1 ? first : fmt::format("{} and {} more", first, files_.size() - 1);
  }

  // Bytes [begin, begin + out.size()), which may cross file borders.
  void read(std::int64_t begin, std::span<std::byte> out) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), begin);
    for (auto f = static_cast<std::size_t>(after - begins_.begin()) - 1; !out.empty(); ++f) {
      const std::int64_t offset = begin - begins_[f];
      const auto here = static_cast<std::size_t>(
          std::min<std::int64_t>(files_[f].size() - offset, static_cast<std::int64_t>(out.size())));
      files_[f].read(offset, out.first(here));
      out = out.subspan(here);
      begin += static_cast<std::int64_t>(here);
    }
  }

 private:
  std::vector<InputFile> files_;
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
};

struct TextRange {
  std::shared_ptr<const Corpus> corpus;
  std::int64_t begin = 0, end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

enum class Order { kFixed, kShuffled };

class TextSource final : public BatchSource {
 public:
  TextSource(TextRange range, const RunConfig& config, Order order)
      : range_(std::move(range)),
        seq_len_(config.train.seq_len),
        windows_((range_.size() - 1) / seq_len_),
        seed_(config.train.seed),
        order_(order) {}

  void sample(std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> labels) override {
    check_sample_request(index, tokens.size(), labels.size(), seq_len_);
    std::vector<std::byte> bytes(tokens.size() + 1);
    range_.corpus->read(range_.begin + window_of(index) * seq_len_, bytes);
    std::vector<std::int32_t> window(bytes.size());
    std::transform(bytes.begin(), bytes.end(), window.begin(),
                   [](std::byte b) { return std::to_integer<std::int32_t>(b); });
    split_window(window, tokens, labels);
  }

  std::string describe() const override {
    return fmt::format("text: bytes [{}, {}) of {}, {} samples of {} per epoch, {}", range_.begin,
                       range_.end, range_.corpus->names(), windows_, seq_len_,
                       order_ == Order::kShuffled ? "shuffled" : "in order");
  }

  std::int64_t num_tokens() const override { return range_.size(); }

 private:
  [[nodiscard]] std::int64_t window_of(std::int64_t index) const {
    const std::int64_t epoch = index / windows_, position = index % windows_;
    if (order_ == Order::kFixed) return position;
    const std::uint64_t stream = stream_id("data.text.epoch") + static_cast<std::uint64_t>(epoch);
    return permuted(position, windows_, seed_, stream);
  }

  TextRange range_;
  int seq_len_;
  std::int64_t windows_;
  std::uint64_t seed_;
  Order order_;
};

}  // namespace

BatchSources open_text(const RunConfig& config) {
  if (config.model.vocab < kByteVocab) {
    throw_error(ExitCode::kUsage, "model.vocab is {}; data.kind \"text\" needs at least {}",
                config.model.vocab, kByteVocab);
  }
  if (config.data.train.empty()) {
    throw_error(ExitCode::kUsage, "data.train names no file; data.kind \"text\" needs one or more");
  }
  const int seq_len = config.train.seq_len;
  const auto corpus = std::make_shared<const Corpus>(DataKey{"data.train", config.data.train, ""});
  TextRange train{corpus, 0, corpus->size()}, valid{corpus, corpus->size(), corpus->size()};
  if (!config.data.valid.empty()) {
    const auto held_out =
        std::make_shared<const Corpus>(DataKey{"data.valid", config.data.valid, ""});
    valid = {held_out, 0, held_out->size()};
  } else {
    const double share = config.data.valid_fraction * static_cast<double>(corpus->size());
    valid.begin -= static_cast<std::int64_t>(std::ceil(share));
    train.end = valid.begin;
  }
  require_one_sample(train.corpus->names(), train.size(), "bytes for training", seq_len,
                     "give more text or a smaller train.seq_len");

  BatchSources sources;
  sources.train = std::make_unique<TextSource>(train, config, Order::kShuffled);
  const bool wanted =
      !config.data.valid.empty() || (config.train.eval_every > 0 && valid.size() > 0);
  if (wanted) {
    require_one_sample(valid.corpus->names(), valid.size(), "bytes for validation", seq_len,
                       config.data.valid.empty()
                           ? "raise data.valid_fraction, give more text, or set train.eval_every "
                             "to 0"
                           : "give more text in data.valid, or a smaller train.seq_len");
  }
  if (valid.size() > seq_len) {
    sources.valid = std::make_unique<TextSource>(valid, config, Order::kFixed);
  }
  return sources;
}

}  // namespace tandem
