// Checkpoints hold what was saved, under any layout, and only as many as are wanted stay.
#include <catch2/catch.hpp>

#include "pieces.h"

using namespace tandem;
using Catch::Contains;

TEST_CASE("a checkpoint holds what was saved") {
  const TempFolder scratch;
  const std::string dir = scratch / "runs/a";
  CHECK(!find_checkpoint(dir).has_value());
  save(dir, 42, 1);
  const auto found = find_checkpoint(dir);
  REQUIRE(found.has_value());
  CHECK(found->path == dir + "/step-00000042");
  CHECK(found->warnings.empty());
  CHECK(loads(found->path, 1));
  Pieces pieces = whole();
  for (const CheckpointInfo& info : {found->info, load_checkpoint(found->path, pieces.list)}) {
    CHECK(info.step == 42);
    CHECK(info.consumed_samples == 42 * 8);
    CHECK(info.seed == 0xFFFFFFFFFFFFFFFFULL);
    CHECK(info.config_json == info_of(42).config_json);
    CHECK(info.loss_scale_json.empty());
  }
  CHECK(entries(dir) == Names{"step-00000042"});
  CHECK(entries(found->path) == Names{"manifest.json", "rank-00000.safetensors"});
}

TEST_CASE("the loss scaler's state is kept, and files without one load") {
  const TempFolder scratch;
  CheckpointInfo info = info_of(7);
  info.loss_scale_json = "{\"scale\":65536}";
  Pieces pieces = whole();
  save_checkpoint(scratch / "a", info, pieces.list, 2, {});
  CHECK(find_checkpoint(scratch / "a")->info.loss_scale_json == info.loss_scale_json);
  // What a run without loss scaling writes does not mention it.
  save(scratch / "b", 7, 1);
  CHECK_THAT(read_bytes(scratch / "b/step-00000007/manifest.json"), !Contains("loss_scale"));
}

TEST_CASE("any layout loads any other") {
  const TempFolder scratch;
  for (unsigned round = 0; round < 5; ++round) {
    const auto step = static_cast<std::int64_t>(round);
    std::vector<Pieces> writers = layout(4, round);
    for (const std::string& error : save_ranks(scratch / "c", step, writers, 2, no_hook)) {
      CHECK(error.empty());
    }
    const auto found = find_checkpoint(scratch / "c");
    REQUIRE(found.has_value());
    CHECK(found->info.step == step);
    for (const std::size_t readers : {1U, 2U, 3U, 4U}) {
      for (Pieces& reader : layout(readers, 100 + round)) {
        load_checkpoint(found->path, reader.list);
        CHECK(reader.holds(step));
      }
    }
  }
}

TEST_CASE("only the files that hold something wanted are opened") {
  const TempFolder scratch;
  std::vector<Pieces> ranks(2);
  ranks[0].add("a", 6, 0, 3);
  ranks[1].add("a", 6, 3, 3);
  save_ranks(scratch / "c", 1, ranks, 2, no_hook);
  const std::string path = scratch / "c/step-00000001";
  std::filesystem::remove(path + "/rank-00001.safetensors");
  Pieces first, second;
  first.add("a", 6, 1, 2);
  second.add("a", 6, 2, 2);
  load_checkpoint(path, first.list);
  CHECK(first.holds(1));
  CHECK_THROWS_WITH(load_checkpoint(path, second.list), Contains("rank-00001.safetensors"));
}

TEST_CASE("what a checkpoint does not hold is named") {
  const TempFolder scratch;
  save(scratch / "c", 1, 1);
  const std::string path = scratch / "c/step-00000001";
  Pieces unknown, resized;
  unknown.add("layers.9.norm", 7, 0, 7);
  CHECK_THROWS_WITH(load_checkpoint(path, unknown.list), Contains("no tensor layers.9.norm"));
  resized.add("head", 2, 0, 1);
  CHECK_THROWS_WITH(load_checkpoint(path, resized.list),
                    Contains("head has 1 elements, the model expects 2"));
  CHECK_THROWS_WITH(load_checkpoint(scratch / "c/none", resized.list), Contains("No such file"));
}

TEST_CASE("pieces that do not cover every tensor once are not saved") {
  const TempFolder scratch;
  save(scratch / "c", 1, 1);
  Pieces pieces;
  SECTION("a gap") {
    pieces.add("a", 9, 0, 4);
    pieces.add("a", 9, 5, 4);
    CHECK_THROWS_WITH(save_checkpoint(scratch / "c", info_of(2), pieces.list, 2, {}),
                      Contains("tensor a: elements [4, 5) are missing"));
  }
  SECTION("an overlap") {
    pieces.add("a", 9, 0, 5);
    pieces.add("a", 9, 4, 5);
    CHECK_THROWS_WITH(save_checkpoint(scratch / "c", info_of(2), pieces.list, 2, {}),
                      Contains("tensor a: elements [4, 5) are held twice"));
  }
  SECTION("an end") {
    pieces.add("a", 9, 0, 8);
    CHECK_THROWS_WITH(save_checkpoint(scratch / "c", info_of(2), pieces.list, 2, {}),
                      Contains("tensor a: elements [8, 9) are missing"));
  }
  CHECK(entries(scratch / "c") == Names{"step-00000001"});
}

TEST_CASE("the newest complete checkpoints are kept, damaged ones do not count") {
  const TempFolder scratch;
  const std::string dir = scratch / "c";
  for (std::int64_t step = 1; step <= 5; ++step) save(dir, step, step, 3);
  CHECK(entries(dir) == Names{"step-00000003", "step-00000004", "step-00000005"});
  std::filesystem::remove(dir + "/step-00000005/manifest.json");
  save(dir, 6, 6, 0);  // at least two
  CHECK(entries(dir) == Names{"step-00000004", "step-00000005", "step-00000006"});
  save(dir, 2, 2, 2);  // a step before the others: never removed by its own save
  CHECK(entries(dir) == Names{"step-00000002", "step-00000004", "step-00000005", "step-00000006"});
  save(dir, 123456789, 7, 2);
  CHECK(find_checkpoint(dir)->info.step == 123456789);
}

TEST_CASE("other files in the folder are left alone") {
  const TempFolder scratch;
  const std::string dir = scratch / "c";
  std::filesystem::create_directories(dir);
  for (const char* name :
       {"notes.txt", "step-1", "step-0000000x", "step--0000001", "xstep-00000001"}) {
    write_bytes(dir + "/" + name, "mine");
  }
  CHECK(!find_checkpoint(dir).has_value());
  save(dir, 1, 1);
  CHECK(entries(dir).size() == 6);
  CHECK(find_checkpoint(dir)->warnings.empty());
}
