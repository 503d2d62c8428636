// A run that continues from a checkpoint equals one that never stopped: bit for bit under the same
// layout, to rounding under another.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "../../src/train/same_run.h"
#include "tandem/ckpt/claim.h"
#include "tandem/comm/shared_error.h"
#include "training.h"

namespace tandem {
namespace {

constexpr double kTolerance = 1e-5;

// Ten steps with checkpoints after 5 and 10.
Overrides ten_steps(const std::string& dir) {
  return {"train.steps=10", "checkpoint.every=5", "checkpoint.dir=" + dir};
}

// A folder that holds what a run would have left that ended after five steps.
std::string stopped_after_five(const std::string& from, const std::string& to) {
  std::filesystem::copy(step_folder(from, 5), step_folder(to, 5),
                        std::filesystem::copy_options::recursive);
  return to;
}

std::vector<double> last(const std::vector<double>& values, std::size_t count) {
  return {values.end() - static_cast<std::ptrdiff_t>(count), values.end()};
}

TEST_CASE("resumed equals never stopped bit for bit") {
  const auto layout =
      GENERATE(Overrides{"parallel.pp=2", "parallel.vpp=2", "parallel.ep=2"},
               Overrides{"parallel.pp=2", "train.dtype=bf16", "model.tied_embeddings=true"},
               Overrides{"parallel.ep=2", "optimizer.schedule=wsd", "optimizer.decay_steps=4"});
  const int ranks = layout.back() == "parallel.ep=2" ? 4 : 2;
  INFO(fmt::format("{}", fmt::join(layout, " ")));
  const TempFolder folder;
  const std::string whole = folder / "whole", again = folder / "again";
  const Training straight = train(ranks, layout + ten_steps(whole));
  REQUIRE(straight.steps.size() == 10);
  std::filesystem::create_directory(again);
  const Training resumed = train(ranks, layout + ten_steps(stopped_after_five(whole, again)));
  REQUIRE(resumed.steps.size() == 5);
  CHECK(resumed.steps.front().step == 6);
  CHECK(resumed.result.steps == 10);
  CHECK(resumed.losses() == last(straight.losses(), 5));
  CHECK(read_state(step_folder(again, 10), layout) == read_state(step_folder(whole, 10), layout));
}

TEST_CASE("a checkpoint continues under any layout") {
  const TempFolder folder;
  const std::string whole = folder / "whole";
  const Training straight =
      train(4, Overrides{"parallel.pp=2", "parallel.ep=2"} + ten_steps(whole));
  const ModelState at_five = read_state(step_folder(whole, 5), {});

  struct Layout {
    int ranks;
    Overrides overrides;
  };
  const std::vector<Layout> layouts = {
      {1, {}},
      {2, {}},
      {4, {"parallel.pp=4"}},
      {2, {"parallel.pp=2", "parallel.vpp=2"}},
      {4, {"parallel.ep=4"}},
      {4, {"parallel.ep=2"}},
      {3, {"parallel.pp=3", "parallel.spread=spread"}},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    INFO(fmt::format("{} ranks {}", layouts[i].ranks, fmt::join(layouts[i].overrides, " ")));
    const std::string other = folder / fmt::format("{}", i);
    std::filesystem::create_directory(other);
    const Training resumed =
        train(layouts[i].ranks, layouts[i].overrides + ten_steps(stopped_after_five(whole, other)));
    REQUIRE(resumed.steps.size() == 5);
    for (std::size_t s = 0; s < 5; ++s)
      CHECK(std::abs(resumed.steps[s].loss / straight.steps[5 + s].loss - 1.0) <= kTolerance);

    // Written again without a step in between, it is the same checkpoint.
    const std::string copy = folder / fmt::format("{}-copy", i);
    std::filesystem::create_directory(copy);
    (void)train(
        layouts[i].ranks,
        layouts[i].overrides +
            Overrides{"train.steps=5", "checkpoint.dir=" + stopped_after_five(whole, copy)});
    CHECK(read_state(step_folder(copy, 5), {}) == at_five);
  }
}

TEST_CASE("a damaged newest checkpoint is passed over") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  const Training straight = train(2, Overrides{"parallel.pp=2"} + ten_steps(dir));
  const std::string shard = step_folder(dir, 10) + "/rank-00001.safetensors";
  std::string bytes = read_bytes(shard);
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(shard, bytes);

  const auto found = find_checkpoint(dir);
  REQUIRE(found);
  CHECK(found->info.step == 5);
  REQUIRE(found->warnings.size() == 1);
  CHECK_THAT(found->warnings[0], Catch::Contains("step-00000010"));

  const Training resumed = train(2, Overrides{"parallel.pp=2"} + ten_steps(dir));
  CHECK(resumed.losses() == last(straight.losses(), 5));
  CHECK(find_checkpoint(dir)->info.step == 10);  // the damaged one was replaced
}

TEST_CASE("when every checkpoint is damaged the run refuses to start from nothing") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  (void)train(2, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  std::filesystem::resize_file(step_folder(dir, 2) + "/rank-00000.safetensors", 100);
  try {
    (void)train(2, Overrides{"train.steps=4", "checkpoint.dir=" + dir});
    FAIL("it started");
  } catch (const SharedError& error) {  // said once
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Catch::Contains("step-00000002"));
  }
}

// The refusal that a run with `changes` meets in `dir`; none: "".
std::string refusal(const std::string& dir, const Overrides& changes, ExitCode code) {
  try {
    (void)train(1, Overrides{"train.steps=4", "checkpoint.dir=" + dir} + changes);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
}

TEST_CASE("a checkpoint is refused where the samples would be others") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  const std::vector<std::pair<const char*, const char*>> changes = {
      {"train.seed=7", "train.seed: 1234 -> 7\n"},
      {"train.global_batch=4", "train.global_batch: 8 -> 4\n"},
      {"train.seq_len=8", "train.seq_len: 16 -> 8\n"}};
  for (const auto& [change, told] : changes) {
    const std::string what = refusal(dir, {change}, ExitCode::kUsage);
    CHECK_THAT(what, Catch::Contains(told) && Catch::Contains("another checkpoint.dir"));
    CHECK(std::count(what.begin(), what.end(), '>') == 1);  // nothing else is said to differ
  }
}

TEST_CASE("a checkpoint of another model is refused with the keys that differ and no others") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  const std::vector<std::pair<const char*, const char*>> changes = {
      // Other weights.
      {"model.hidden=64", "model.hidden: 32 -> 64\n"},
      {"model.layers=5", "model.layers: 4 -> 5\n"},
      {"model.layers=3", "model.layers: 4 -> 3\n"},
      {"model.qk_norm=full", "model.qk_norm: \"none\" -> \"full\"\n"},
      {"model.tied_embeddings=true", "model.tied_embeddings: false -> true\n"},
      {"model.experts=8", "model.experts: 4 -> 8\n"},
      {"model.first_k_dense=1", "model.first_k_dense: 0 -> 1\n"},
      // Another function of the same weights.
      {"model.rope_theta=500000", "model.rope_theta: 10000 -> 500000\n"},
      {"model.topk=3", "model.topk: 2 -> 3\n"},
      {"model.norm_topk_prob=false", "model.norm_topk_prob: true -> false\n"},
      {"model.norm_eps=1e-5", "model.norm_eps: "}};
  for (const auto& [change, told] : changes) {
    INFO(change);
    const std::string what = refusal(dir, {change}, ExitCode::kBadInput);
    CHECK_THAT(what, Catch::Contains(told) && Catch::Contains("another checkpoint.dir"));
    CHECK(std::count(what.begin(), what.end(), '>') == 1);
  }
  CHECK_THAT(refusal(dir, {"model.topk=1", "model.norm_topk_prob=false"}, ExitCode::kBadInput),
             Catch::Contains("model.topk: 2 -> 1\n  model.norm_topk_prob: true -> false\n"
                             "set model.topk=2 model.norm_topk_prob=true, or use another"));
  // Keys of both kinds at once.
  const Overrides both = {"model.layers=6", "train.global_batch=32", "train.seq_len=64"};
  CHECK_THAT(
      refusal(dir, both, ExitCode::kBadInput),
      Catch::Contains(" was written for another model, and would continue with other samples:\n"
                      "  model.layers: 4 -> 6\n  train.global_batch: 8 -> 32\n"
                      "  train.seq_len: 16 -> 64\n"
                      "set model.layers=4 train.global_batch=8 train.seq_len=16, or use another"));
}

TEST_CASE("what leaves the model's function as it was does not hold a run up") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  const auto change = GENERATE(
      Overrides{"optimizer.lr=0.001", "model.aux_loss_coef=0.02", "train.dtype=bf16"},
      // dense_ffn of a model without dense layers; the same kinds of layers in other words
      Overrides{"model.dense_ffn=128", "model.moe_pattern=[1,1,1,1]", "model.init_std=0.01"});
  CHECK(refusal(dir, change, ExitCode::kOk).empty());
}

TEST_CASE("a checkpoint whose config does not know a key yet is continued") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  const RunConfig config = tiny(1, {"checkpoint.dir=" + dir, "model.rope_theta=500000"});
  std::string text = to_json(tiny(1, {"checkpoint.dir=" + dir}));
  const std::string info_path = folder / "c/step-00000002";
  CheckpointInfo info{2, 16, config.train.seed, text};
  CHECK_THROWS_WITH(require_same_run(info_path, info, config),
                    Catch::Contains("model.rope_theta: 10000 -> 500000"));
  for (const char* key : {"rope_theta", "topk", "first_k_dense", "seq_len"}) {
    const std::size_t at = text.find(fmt::format("\"{}\":", key));
    REQUIRE(at != std::string::npos);
    text.erase(at, text.find(',', at) + 1 - at);
  }
  info.config_json = text;
  CHECK(require_same_run(info_path, info, config).empty());
  // What else changes the numbers is told.
  CHECK(require_same_run(info_path, info,
                         tiny(1, {"optimizer.lr=0.001", "data.valid_fraction=0.5"})) ==
        "\n  data.valid_fraction: 0.05 -> 0.5\n  optimizer.lr: 0.003 -> 0.001");
}

TEST_CASE("a longer run tells where its learning rate jumps") {
  const Overrides schedule = {"optimizer.lr=0.003", "optimizer.min_lr=0.0003",
                              "optimizer.warmup_steps=6"};
  const auto run = [&](const Overrides& more) {
    Overrides all = schedule;
    all.insert(all.end(), more.begin(), more.end());
    return tiny(1, all);
  };
  const RunConfig before = run({"train.steps=306"});
  const CheckpointInfo info{306, 306 * before.train.global_batch, before.train.seed,
                            to_json(before)};
  CHECK(require_same_run("c", info, run({"train.steps=3000"})) ==
        "\n  learning rate of step 307: 3.00e-04 -> 2.93e-03 (train.steps 306 -> 3000; "
        "optimizer.decay_steps=300 keeps the schedule)");
  CHECK(require_same_run("c", info, run({"train.steps=3000", "optimizer.lr=0.01"})) ==
        "\n  optimizer.lr: 0.003 -> 0.01\n  learning rate of step 307: 3.00e-04 -> 9.76e-03 "
        "(train.steps 306 -> 3000; optimizer.decay_steps=300 keeps the schedule)");
  const Overrides kept = {"train.steps=3000", "optimizer.decay_steps=300"};
  CHECK(require_same_run("c", info, run(kept)) == "\n  optimizer.decay_steps: 0 -> 300");
  // Before the decay of a stable schedule begins, its length changes nothing.
  const RunConfig stable = run({"train.steps=1000", "optimizer.schedule=wsd"});
  const CheckpointInfo early{400, 400 * before.train.global_batch, before.train.seed,
                             to_json(stable)};
  CHECK(require_same_run("c", early, run({"train.steps=2000", "optimizer.schedule=wsd"})).empty());
}

TEST_CASE("a folder belongs to one run at a time") {
  const TempFolder folder;
  const std::string dir = folder / "c";
  const bool resume = GENERATE(true, false);
  const Overrides run = {"parallel.pp=2", "train.steps=2", "checkpoint.dir=" + dir,
                         fmt::format("checkpoint.resume={}", resume)};
  {
    const CheckpointClaim other(dir);
    try {
      (void)train(2, run);
      FAIL("it started");
    } catch (const SharedError& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      CHECK_THAT(error.what(), Catch::Contains(dir + " is in use by another run"));
    }
  }
  CHECK(train(2, run).steps.size() == 2);  // and lets go of the folder at its end
  CHECK_NOTHROW(CheckpointClaim(dir));
}

TEST_CASE("a run that could not save does not begin") {
  const TempFolder folder;
  write_bytes(folder / "file", "mine");
  for (const std::string& dir : {folder / "file/below", std::string("/proc/x")}) {
    int steps = 0;
    try {
      (void)train(2, {"parallel.pp=2", "train.steps=2", "checkpoint.dir=" + dir}, {},
                  [&](const StepReport&) { ++steps; });
      FAIL("it ended well");
    } catch (const SharedError& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      CHECK_THAT(error.what(), Catch::Contains(dir) && Catch::Contains("checkpoint.dir must be"));
    }
    CHECK(steps == 0);
  }
}

}  // namespace
}  // namespace tandem
