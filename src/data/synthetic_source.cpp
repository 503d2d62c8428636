// A seeded first-order Markov chain: every token has four likely successors and, rarely, any token
// follows. A model that learns the successor table reaches about 1.3 nats; one that has learned
// nothing stays at log(vocab).
#include <array>

#include "sources.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr std::array<float, 4> kCumulative = {0.60F, 0.80F, 0.91F, 0.97F};  // the rest: any token

class SyntheticSource final : public BatchSource {
 public:
  SyntheticSource(const RunConfig& config, const char* name)
      : name_(name),
        vocab_(static_cast<std::uint32_t>(config.model.vocab)),
        seq_len_(config.train.seq_len),
        seed_(config.train.seed),
        draws_(stream_id(name)),
        table_(stream_id("data.synthetic.successors")) {}

  void sample(std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> labels) override {
    check_sample_request(index, tokens.size(), labels.size(), seq_len_);
    std::vector<std::int32_t> window(tokens.size() + 1);
    const std::uint64_t first = static_cast<std::uint64_t>(index) * window.size();
    std::uint32_t token = 0;
    for (std::size_t i = 0; i < window.size(); ++i) {
      const auto words = philox(seed_, draws_, first + i);
      token = i == 0 ? words[1] % vocab_ : successor(token, words);
      window[i] = static_cast<std::int32_t>(token);
    }
    split_window(window, tokens, labels);
  }

  std::string describe() const override {
    return fmt::format("synthetic: {}, a Markov chain over {} tokens from seed {}", name_, vocab_,
                       seed_);
  }

  std::int64_t num_tokens() const override { return 0; }

 private:
  [[nodiscard]] std::uint32_t successor(std::uint32_t token,
                                        const std::array<std::uint32_t, 4>& words) const {
    const float u = static_cast<float>(words[0] >> 8) * (1.0F / 16777216.0F);
    for (std::size_t k = 0; k < kCumulative.size(); ++k) {
      if (u < kCumulative[k]) return philox(seed_, table_, token)[k] % vocab_;
    }
    return words[1] % vocab_;
  }

  const char* name_;
  std::uint32_t vocab_;
  int seq_len_;
  std::uint64_t seed_, draws_, table_;
};

}  // namespace

BatchSources open_synthetic(const RunConfig& config) {
  TANDEM_CHECK(config.model.vocab >= 1, "model.vocab");
  return {std::make_unique<SyntheticSource>(config, "training"),
          std::make_unique<SyntheticSource>(config, "validation")};
}

}  // namespace tandem
