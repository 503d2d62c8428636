// The held-out loss is the mean over the held-out samples: what training on them would report.
#include <cmath>
#include <numeric>

#include "training.h"

namespace tandem {
namespace {

constexpr int kSamples = 12, kSeqLen = 16;
// A loss is the logarithm, here near 5.5, of a sum over 256 bytes, and 16 of them are added up in
// fp32: both relative errors, in units of 2^-24, of either of two losses.
const double kRounding = 2.0 * (kSeqLen + 256.0 / 5.5) * 0x1p-24;
constexpr double kLayouts = 1e-5;  // docs/NUMERICS.md

// A whole number of samples and their last label.
std::string text(int step) {
  std::string bytes;
  for (int i = 0; i <= kSamples * kSeqLen; ++i) bytes += static_cast<char>(32 + i * step % 95);
  return bytes;
}

struct Files {
  Files() {
    write_bytes(a, text(7));
    write_bytes(b, text(31));
  }
  TempFolder folder;
  const std::string a = folder / "a", b = folder / "b";
};

// One epoch of `file` in three steps of four samples, with parameters that stay as they are.
Training one_epoch(int ranks, const std::string& file, const std::string& held_out,
                   const Overrides& layout) {
  const Overrides run = {"data.kind=text",
                         "model.vocab=256",
                         "data.train=[\"" + file + "\"]",
                         "data.valid=[\"" + held_out + "\"]",
                         "optimizer.lr=0",
                         "optimizer.min_lr=0",
                         "train.steps=3",
                         "train.global_batch=4",
                         "train.eval_every=3"};
  return train(ranks, run + layout);
}

double mean_loss(const Training& training) {
  const std::vector<double> losses = training.losses();
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

TEST_CASE("the held-out loss is the training loss of the same samples, under every layout") {
  const Files files;
  const auto held_out = [&](int ranks, const Overrides& layout) {
    INFO(fmt::format("{} ranks {}", ranks, fmt::join(layout, " ")));
    const Training same = one_epoch(ranks, files.a, files.a, layout);
    REQUIRE(same.steps.size() == 3);
    CHECK(std::abs(same.result.first_held_out / mean_loss(same) - 1.0) <= kRounding);
    CHECK(same.result.last_held_out == same.result.first_held_out);
    return same.result.first_held_out;
  };
  const double one = held_out(1, {"train.eval_batches=12"});
  for (const auto& [ranks, layout] : std::vector<std::pair<int, Overrides>>{
           {2, {"train.eval_batches=6"}},
           {2, {"train.eval_batches=3", "train.micro_batch=2"}},
           {2, {"train.eval_batches=12", "parallel.pp=2", "parallel.vpp=2"}},
           {4, {"train.eval_batches=6", "parallel.pp=2", "parallel.ep=2"}}})
    CHECK(std::abs(held_out(ranks, layout) / one - 1.0) <= kLayouts);
}

TEST_CASE("the held-out loss is that of the held-out samples") {
  const Files files;
  const Overrides layout = {"train.eval_batches=6"};
  const Training other = one_epoch(2, files.a, files.b, layout);
  const double wanted = mean_loss(one_epoch(2, files.b, files.b, layout));
  CHECK(std::abs(other.result.first_held_out / wanted - 1.0) <= kRounding);
  CHECK(std::abs(other.result.first_held_out / mean_loss(other) - 1.0) > 10 * kRounding);
}

}  // namespace
}  // namespace tandem
