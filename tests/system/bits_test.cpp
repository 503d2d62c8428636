// What must not change a single bit: overlap, event modes, delayed weight gradients, threads,
// modelled delays and poisoned memory. Compared are the losses of every step and the whole state
// (master weights, m, v) after the last one.
#include "training.h"

namespace tandem {
namespace {

struct Result {
  std::vector<double> losses;
  ModelState state;
};

Result run(int ranks, const Overrides& overrides) {
  const TempFolder folder;
  const Training training = train(ranks, overrides + Overrides{"checkpoint.dir=" + (folder / "c")});
  return {
      training.losses(),
      read_state(step_folder(folder / "c", static_cast<int>(training.steps.size())), overrides)};
}

// `variants` are added to `base` one at a time.
void require_equal_bits(int ranks, const Overrides& base, const std::vector<Overrides>& variants) {
  const Result expected = run(ranks, base);
  REQUIRE(expected.losses.back() < expected.losses.front());
  for (const Overrides& variant : variants) {
    INFO(fmt::format("{}", fmt::join(variant, " ")));
    const Result found = run(ranks, base + variant);
    CHECK(found.losses == expected.losses);
    CHECK(found.state == expected.state);
  }
}

const std::vector<Overrides> kSchedules = {
    {"overlap.enabled=false"},
    {"overlap.delay_wgrad=false"},
    {"overlap.events=shared"},
    {"overlap.enabled=false", "overlap.delay_wgrad=false"},
    {"overlap.events=shared", "overlap.delay_wgrad=false"},
};

TEST_CASE("the schedule does not change a bit: interleaved stages with expert parallelism") {
  require_equal_bits(4, {"parallel.pp=2", "parallel.vpp=2", "parallel.ep=2", "train.steps=10"},
                     kSchedules);
}

TEST_CASE("the schedule does not change a bit: one stage") {
  require_equal_bits(2, {"parallel.ep=2", "train.steps=10", "model.moe_pattern=[0,1,1,0]"},
                     kSchedules);
}

TEST_CASE("the schedule does not change a bit: two plain stages in bf16 with tied embeddings") {
  require_equal_bits(2,
                     {"parallel.pp=2", "train.dtype=bf16", "train.steps=10",
                      "model.tied_embeddings=true", "model.qk_norm=per_head"},
                     kSchedules);
}

TEST_CASE("the schedule does not change a bit: fp16 whose loss scale falls and rises") {
  require_equal_bits(4,
                     {"parallel.pp=2", "parallel.ep=2", "train.dtype=fp16", "train.steps=14",
                      "optimizer.initial_loss_scale=16777216", "optimizer.loss_scale_window=2"},
                     kSchedules);
}

TEST_CASE("poisoned memory, slow all-to-alls and evaluations do not change a bit") {
  require_equal_bits(4, {"parallel.pp=2", "parallel.vpp=2", "parallel.ep=2", "train.steps=5"},
                     {{"train.eval_every=2", "train.eval_batches=3"},
                      {"train.poison_memory=true"},
                      {"train.poison_memory=true", "overlap.delay_wgrad=false"},
                      {"train.poison_memory=true", "train.alltoall_delay_us=500"}});
}

TEST_CASE("the number of CPU threads does not change a bit") {
  // Large enough that every kernel has work to share.
  require_equal_bits(2,
                     {"parallel.ep=2", "model.hidden=128", "model.moe_ffn=128", "model.vocab=512",
                      "model.heads=4", "train.seq_len=64", "train.steps=4"},
                     {{"train.cpu_threads=2"}, {"train.cpu_threads=3"}});
}

TEST_CASE("two runs of one config are equal") {
  require_equal_bits(4, {"parallel.pp=4", "train.steps=5"}, {{}});
}

}  // namespace
}  // namespace tandem
