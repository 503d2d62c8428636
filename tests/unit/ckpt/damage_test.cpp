// Whatever happens during or after a save, the newest complete checkpoint is found, and what is
// wrong with the others is said.
#include <sys/resource.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "../../../src/ckpt/manifest.h"
#include "pieces.h"

using namespace tandem;
using Catch::Contains;

namespace {

// Runs `body` in a child process; returns its exit status.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a damaged checkpoint is named with the reason and the one before is used") {
  const TempFolder scratch;
  const std::string dir = scratch / "c", newest = dir + "/step-00000002";
  save(dir, 1, 1);
  save(dir, 2, 2);
  REQUIRE(find_checkpoint(dir)->info.step == 2);
  const auto falls_back = [&](const std::string& reason) {
    const auto found = find_checkpoint(dir);
    REQUIRE(found.has_value());
    CHECK(found->info.step == 1);
    CHECK(loads(found->path, 1));
    REQUIRE(found->warnings.size() == 1);
    CHECK_THAT(found->warnings[0], Contains("step-00000002") && Contains(reason));
  };
  const std::string shard = newest + "/rank-00000.safetensors",
                    manifest = newest + "/manifest.json";

  SECTION("any byte of the shard") {
    const std::string original = read_bytes(shard);
    for (std::size_t at = 0; at < original.size(); at += 97) {
      std::string changed = original;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write_bytes(shard, changed);
      falls_back("rank-00000.safetensors has the checksum");
      CHECK(find_checkpoint(dir, false)->info.step == 2);  // sizes alone do not tell
    }
  }
  SECTION("every byte of the manifest") {
    const std::string original = read_bytes(manifest);
    for (std::size_t at = 0; at < original.size(); at += 3) {
      std::string changed = original;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write_bytes(manifest, changed);
      falls_back("manifest.json");
    }
  }
  SECTION("a short shard") {
    std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
    falls_back("the manifest says");
  }
  SECTION("a short manifest") {
    for (const std::uintmax_t size : {0U, 1U, 20U, 500U}) {
      std::filesystem::resize_file(manifest, size);
      falls_back("cut short");
    }
  }
  SECTION("a missing shard") {
    std::filesystem::remove(shard);
    falls_back("No such file");
  }
  SECTION("a missing manifest") {
    std::filesystem::remove(manifest);
    falls_back("manifest.json: No such file");
  }
  SECTION("a link in place of the shard") {
    std::filesystem::rename(shard, scratch / "elsewhere");
    std::filesystem::create_symlink(scratch / "elsewhere", shard);
    falls_back("rank-00000.safetensors");
  }
  SECTION("the folder of another step") {
    std::filesystem::remove_all(newest);
    std::filesystem::copy(dir + "/step-00000001", newest);
    falls_back("is of step 1");
  }
  SECTION("all of them") {
    std::filesystem::remove(manifest);
    std::filesystem::remove(dir + "/step-00000001/manifest.json");
    CHECK_THROWS_WITH(find_checkpoint(dir), Contains("all checkpoints are damaged") &&
                                                Contains("step-00000001") &&
                                                Contains("step-00000002"));
  }
}

TEST_CASE("a manifest that lies under a right checksum is refused") {
  Manifest good;
  good.info = info_of(3);
  good.files = {{"rank-00000.safetensors", 10, 1}, {"rank-00001.safetensors", 10, 1}};
  good.tensors["a"] = {9, {{0, 0, 4}, {1, 4, 5}}};
  CHECK(to_text(parse_manifest(to_text(good), "m")) == to_text(good));

  const auto refused = [&](const std::function<void(Manifest&)>& change, const char* reason) {
    Manifest changed = good;
    change(changed);
    CHECK_THROWS_WITH(parse_manifest(to_text(changed), "m"), Contains(reason));
  };
  for (const char* name : {"", ".", "..", "../x", "/etc/passwd", "a/b", "rank-00001.safetensors"}) {
    refused([&](Manifest& m) { m.files[0].name = std::string(name); }, "files.name");
  }
  refused([](Manifest& m) { m.info.step = -1; }, "step");
  refused([](Manifest& m) { m.info.consumed_samples = -1; }, "consumed_samples");
  refused([](Manifest& m) { m.tensors["a"].size = 0; }, "size");
  refused([](Manifest& m) { m.tensors["a"].size = 10; }, "tensor a: elements [9, 10) are missing");
  refused([](Manifest& m) { m.tensors["a"].pieces[1].file = 2; }, "pieces.file");
  refused([](Manifest& m) { m.tensors["a"].pieces[1].count = 6; }, "pieces.count");
  refused([](Manifest& m) { m.tensors["a"].pieces[1].count = INT64_MAX; }, "pieces.count");
  refused([](Manifest& m) { m.tensors["a"].pieces[1].begin = 3; }, "held twice");
  refused([](Manifest& m) { m.tensors["b"] = {4, {}}; }, "tensor b: elements [0, 4) are missing");
}

TEST_CASE("a save that is killed at any stage leaves a checkpoint that loads") {
  const std::string stages[] = {"folder prepared",   "shard written", "manifest written",
                                "old one set aside", "renamed",       "old ones removed"};
  for (const std::string& stage : stages) {
    for (const std::int64_t step : {2, 3}) {  // saving step 2 again, and a new step 3
      INFO(stage << ", step " << step);
      const TempFolder scratch;
      const std::string dir = scratch / "c";
      save(dir, 1, 1);
      save(dir, 2, 2);
      const bool reached = step == 2 || stage != "old one set aside";
      const int status = in_child([&] {
        save(dir, step, 30, 2, [&](const char* at) {
          if (at == stage) ::_exit(9);
        });
      });
      CHECK(status == (reached ? 9 : 0));

      const auto found = find_checkpoint(dir);
      REQUIRE(found.has_value());
      CHECK(found->warnings.empty());
      const bool done = stage == "renamed" || stage == "old ones removed" || !reached;
      CHECK(found->info.step == (done ? step : 2));
      CHECK(loads(found->path, done ? 30 : 2));

      save(dir, 4, 40);
      CHECK(loads(find_checkpoint(dir)->path, 40));
      const std::string previous = step == 3 && done ? "step-00000003" : "step-00000002";
      CHECK(entries(dir) == Names{previous, "step-00000004"});
    }
  }
}

TEST_CASE("a failure on one rank is an error on all, and the earlier checkpoint stays") {
  const TempFolder scratch;
  std::vector<Pieces> ranks = layout(3, 1);
  save_ranks(scratch / "c", 1, ranks, 2, no_hook);
  for (const std::string stage : {"folder prepared", "shard written"}) {
    const auto errors = save_ranks(scratch / "c", 2, ranks, 2, [&](int rank) -> SaveHook {
      if (rank != 2) return {};
      return [&](const char* at) {
        if (at == stage) throw_error(ExitCode::kBadInput, "no space left");
      };
    });
    for (const std::string& error : errors) {
      CHECK(error == "saving a checkpoint failed on rank 2: no space left");
    }
    CHECK(entries(scratch / "c") == Names{"step-00000001"});
  }
  // What rank 0 does alone, saving step 1 again.
  for (const std::string stage :
       {"manifest written", "old one set aside", "renamed", "old ones removed"}) {
    INFO(stage);
    const auto errors = save_ranks(scratch / "c", 1, ranks, 2, [&](int rank) -> SaveHook {
      if (rank != 0) return {};
      return [&](const char* at) {
        if (at == stage) throw_error(ExitCode::kBadInput, "no space left");
      };
    });
    for (const std::string& error : errors) {
      CHECK(error == "saving a checkpoint failed on rank 0: no space left");
    }
    CHECK(entries(scratch / "c") == Names{"step-00000001"});
  }
  for (const char* stage : {"manifest written", "old one set aside"}) {
    CHECK_THROWS_WITH(save(scratch / "c", 1, 5, 2,
                           [&](const char* at) {
                             if (std::string(at) == stage) throw std::runtime_error("broken");
                           }),
                      Contains("broken"));
    CHECK(entries(scratch / "c") == Names{"step-00000001"});
    CHECK(loads(find_checkpoint(scratch / "c")->path, 1));
  }
}

TEST_CASE("a file that cannot be written to its end is reported with its path and the reason") {
  const TempFolder scratch;
  save(scratch / "c", 1, 1);
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};  // bytes per file: stands for a full disk
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(scratch / "c", 2, 2);
    } catch (const Error& error) {
      const std::string what = error.what();
      const bool told = what.find("rank-00000.safetensors") != std::string::npos &&
                        what.find("File too large") != std::string::npos;
      ::_exit(told ? 7 : 8);
    }
  });
  CHECK(status == 7);
  CHECK(entries(scratch / "c") == Names{"step-00000001"});
  CHECK(find_checkpoint(scratch / "c")->info.step == 1);
}
