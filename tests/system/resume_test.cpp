// A run that continues from a checkpoint equals one that never stopped: bit for bit under the same
// layout, to rounding under another.
#include <cmath>
#include <filesystem>

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
  const Scratch folder;
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
  const Scratch folder;
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
  const Scratch folder;
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
  const Scratch folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  std::filesystem::resize_file(step_folder(dir, 2) + "/rank-00000.safetensors", 100);
  try {
    (void)train(1, Overrides{"train.steps=4", "checkpoint.dir=" + dir});
    FAIL("it started");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Catch::Contains("step-00000002"));
  }
}

TEST_CASE("a checkpoint is refused where the samples would be others") {
  const Scratch folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  for (const char* change : {"train.seed=7", "train.global_batch=4"}) {
    try {
      (void)train(1, Overrides{"train.steps=4", "checkpoint.dir=" + dir, change});
      FAIL("it started with " << change);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      CHECK_THAT(error.what(), Catch::Contains("use another checkpoint.dir"));
    }
  }
}

TEST_CASE("a checkpoint of another model is refused by name") {
  const Scratch folder;
  const std::string dir = folder / "c";
  (void)train(1, Overrides{"train.steps=2", "checkpoint.dir=" + dir});
  for (const char* change :
       {"model.hidden=64", "model.layers=5", "model.layers=3", "model.qk_norm=full",
        "model.tied_embeddings=true", "model.experts=8"}) {
    INFO(change);
    try {
      (void)train(1, Overrides{"train.steps=4", "checkpoint.dir=" + dir, change});
      FAIL("it started");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadInput);
    }
  }
}

}  // namespace
}  // namespace tandem
