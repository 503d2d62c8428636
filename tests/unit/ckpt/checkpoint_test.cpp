// Checkpoints: whatever happens during or after a save, the newest complete one is found and holds
// what was saved, under any layout.
#include <sys/resource.h>
#include <sys/wait.h>

#include <barrier>
#include <catch2/catch.hpp>
#include <csignal>
#include <random>
#include <thread>

#include "../../../src/ckpt/manifest.h"
#include "../data/scratch.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/ckpt/checkpoint.h"

using namespace tandem;
using Catch::Contains;

namespace {

const std::vector<std::pair<std::string, std::int64_t>> kTensors = {
    {"embedding", 50}, {"layers.0.experts.gate_up", 96}, {"layers.0.norm", 7}, {"head", 1}};

float value_of(const std::string& name, std::int64_t element, int part, std::int64_t version) {
  return philox_uniform(static_cast<std::uint64_t>(version), stream_id(name.c_str()),
                        static_cast<std::uint64_t>(element * 3 + part));
}

// One rank's pieces with their memory.
class Pieces {
 public:
  Pieces() = default;
  Pieces(Pieces&&) = default;  // spans stay valid: the inner vectors keep their memory
  void add(const std::string& name, std::int64_t size, std::int64_t begin, std::int64_t count) {
    const auto n = static_cast<std::size_t>(count);
    memory_.emplace_back(3 * n, -1.0F);
    const std::span<float> all(memory_.back());
    list.push_back({name, size, begin, all.first(n), all.subspan(n, n), all.last(n)});
  }

  void fill(std::int64_t version) {
    for_each([&](float& at, float value) { at = value; }, version);
  }

  [[nodiscard]] bool holds(std::int64_t version) {
    bool equal = true;
    for_each([&](const float& at, float value) { equal = equal && at == value; }, version);
    return equal;
  }

  std::vector<StatePiece> list;

 private:
  template <class Visit>
  void for_each(const Visit& visit, std::int64_t version) {
    for (const StatePiece& piece : list) {
      for (std::size_t i = 0; i < piece.master.size(); ++i) {
        const std::int64_t element = piece.begin + static_cast<std::int64_t>(i);
        visit(piece.master[i], value_of(piece.name, element, 0, version));
        visit(piece.m[i], value_of(piece.name, element, 1, version));
        visit(piece.v[i], value_of(piece.name, element, 2, version));
      }
    }
  }

  std::vector<std::vector<float>> memory_;
};

// Every tensor cut at random places, the parts dealt to random ranks: some get none of a tensor,
// some several parts of it, and an expert tensor may lie in the middle of a rank only.
std::vector<Pieces> layout(std::size_t ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Pieces> all(ranks);
  for (const auto& [name, size] : kTensors) {
    for (std::int64_t begin = 0; begin < size;) {
      const auto most = static_cast<unsigned>(size - begin);
      const std::int64_t count = 1 + random() % std::min(most, 20U);
      all[random() % ranks].add(name, size, begin, count);
      begin += count;
    }
    all[random() % ranks].add(name, size, size / 2, 0);
  }
  return all;
}

Pieces whole() {
  return std::move(layout(1, 0).front());
}

CheckpointInfo info_of(std::int64_t step) {
  return {step, step * 8, 0xFFFFFFFFFFFFFFFFULL, "{\"model\":{\"name\":\"\\u00e4\\n\"}}"};
}

// Saves from one thread per rank, the exceptions' texts by rank.
std::vector<std::string> save_ranks(const std::string& dir, std::int64_t step,
                                    std::vector<Pieces>& ranks, int keep,
                                    const std::function<SaveHook(int)>& hook_of) {
  const auto size = static_cast<int>(ranks.size());
  std::barrier meet(size);
  std::vector<std::string> slots(ranks.size()), errors(ranks.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto self = static_cast<std::size_t>(rank);
      CheckpointPeers peers{rank, size, [&] { meet.arrive_and_wait(); },
                            [&](const std::string& mine) {
                              slots[self] = mine;
                              // hazard: every slot is written before any is read
                              meet.arrive_and_wait();
                              std::vector<std::string> all = slots;
                              // hazard: every slot is read before any is written again
                              meet.arrive_and_wait();
                              return all;
                            }};
      try {
        ranks[self].fill(step);
        save_checkpoint(dir, info_of(step), ranks[self].list, keep, peers, hook_of(rank));
      } catch (const Error& error) {
        errors[self] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void save(const std::string& dir, std::int64_t step, std::int64_t version, int keep = 2,
          const SaveHook& hook = {}) {
  Pieces pieces = whole();
  pieces.fill(version);
  save_checkpoint(dir, info_of(step), pieces.list, keep, {}, hook);
}

bool loads(const std::string& path, std::int64_t version) {
  Pieces pieces = whole();
  load_checkpoint(path, pieces.list);
  return pieces.holds(version);
}

std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

const SaveHook& no_hook(int) {
  static const SaveHook none;
  return none;
}

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

TEST_CASE("a checkpoint holds what was saved") {
  const Scratch scratch;
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
  }
  CHECK(entries(dir) == Names{"step-00000042"});
  CHECK(entries(found->path) == Names{"manifest.json", "rank-00000.safetensors"});
}

TEST_CASE("any layout loads any other") {
  const Scratch scratch;
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
  const Scratch scratch;
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
  const Scratch scratch;
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
  const Scratch scratch;
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

TEST_CASE("a damaged checkpoint is named with the reason and the one before is used") {
  const Scratch scratch;
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
      const Scratch scratch;
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
  const Scratch scratch;
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
      CHECK_THAT(error, Contains("rank 2") && Contains("no space left"));
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
  const Scratch scratch;
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

TEST_CASE("the newest complete checkpoints are kept, damaged ones do not count") {
  const Scratch scratch;
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
  const Scratch scratch;
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
