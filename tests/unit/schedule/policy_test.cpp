#include "tandem/schedule/policy.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "tandem/base/error.h"

using namespace tandem;

namespace {

std::string text(const std::vector<Task>& tasks) {
  std::string out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& t = tasks[i];
    const bool second = i > 0 && tasks[i - 1].paired;
    out += fmt::format("{}{}{}c{}", second ? "|" : (i == 0 ? "" : " "),
                       t.dir == Dir::kFwd ? "F" : "B", t.microbatch, t.chunk);
  }
  return out;
}

int count_pairs(const std::vector<Task>& tasks) {
  return static_cast<int>(
      std::count_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.paired; }));
}

// Forward done, backward not, counted by walking the order.
int walked_peak(const std::vector<Task>& tasks) {
  int live = 0, peak = 0;
  for (const Task& t : tasks) {
    live += t.dir == Dir::kFwd ? 1 : -1;
    peak = std::max(peak, live);
  }
  return peak;
}

struct Row {
  PipelineShape shape;
  int stage, warmup, pairs, peak;
};

}  // namespace

TEST_CASE("forward order walks groups, chunks, micro-batches") {
  CHECK(text(evaluation_order({2, 2, 4, 2, false}, 0)) ==
        "F0c0 F1c0 F0c1 F1c1 F2c0 F3c0 F2c1 F3c1");
  CHECK(text(evaluation_order({2, 2, 5, 3, true}, 1)) ==
        "F0c0 F1c0 F2c0 F0c1 F1c1 F2c1 F3c0 F4c0 F3c1 F4c1");
}

TEST_CASE("interleaved order with overlap, PP2 V2 N2 M4, last stage") {
  CHECK(text(training_order({2, 2, 4, 2, true}, 1)) ==
        "F0c0 F1c0 F0c1 F1c1|B0c1 F2c0|B1c1 F3c0|B0c0 F2c1|B1c0 F3c1|B2c1 B3c1 B2c0 B3c0");
}

TEST_CASE("interleaved order without overlap pairs nothing") {
  CHECK(text(training_order({2, 2, 4, 2, false}, 1)) ==
        "F0c0 F1c0 F0c1 B0c1 F1c1 B1c1 F2c0 B0c0 F3c0 B1c0 F2c1 B2c1 F3c1 B3c1 B2c0 B3c0");
}

TEST_CASE("warm-up, steady pairs and peak match the published tables") {
  const Row rows[] = {
      {{2, 2, 4, 2, false}, 0, 4, 4, 5},   {{2, 2, 4, 2, false}, 1, 2, 6, 3},
      {{2, 2, 4, 2, true}, 0, 5, 3, 6},    {{2, 2, 4, 2, true}, 1, 3, 5, 4},
      {{4, 2, 8, 4, true}, 0, 11, 5, 12},  {{4, 2, 8, 4, true}, 1, 9, 7, 10},
      {{4, 2, 8, 4, true}, 2, 7, 9, 8},    {{4, 2, 8, 4, true}, 3, 5, 11, 6},
      {{4, 2, 8, 4, false}, 0, 10, 6, 11}, {{4, 2, 8, 4, false}, 1, 8, 8, 9},
      {{4, 2, 8, 4, false}, 2, 6, 10, 7},  {{4, 2, 8, 4, false}, 3, 4, 12, 5},
      {{2, 2, 5, 3, true}, 0, 6, 4, 7},    {{2, 2, 5, 3, true}, 1, 4, 6, 5},
      {{2, 2, 2, 2, true}, 0, 4, 0, 4},    {{2, 2, 2, 2, true}, 1, 3, 1, 4},
      {{4, 2, 4, 4, true}, 0, 8, 0, 8},    {{4, 2, 4, 4, true}, 1, 8, 0, 8},
      {{4, 2, 4, 4, true}, 2, 7, 1, 8},    {{4, 2, 4, 4, true}, 3, 5, 3, 6},
      {{4, 1, 8, 4, false}, 0, 3, 5, 4},   {{4, 1, 8, 4, false}, 3, 0, 8, 1},
      {{4, 1, 8, 4, true}, 0, 7, 1, 8},    {{4, 1, 8, 4, true}, 3, 1, 7, 2},
      {{4, 1, 2, 4, true}, 0, 2, 0, 2},    {{1, 1, 1, 1, true}, 0, 1, 0, 1},
  };
  for (const Row& row : rows) {
    CAPTURE(row.shape.pp, row.shape.vpp, row.shape.microbatches, row.shape.overlap, row.stage);
    const std::vector<Task> order = training_order(row.shape, row.stage);
    CHECK(warmup_tasks(row.shape, row.stage) == row.warmup);
    CHECK(peak_live_chunks(row.shape, row.stage) == row.peak);
    CHECK(walked_peak(order) == row.peak);
    CHECK(count_pairs(order) == (row.shape.overlap ? row.pairs : 0));
    const auto first_bwd =
        std::find_if(order.begin(), order.end(), [](const Task& t) { return t.dir == Dir::kBwd; });
    const int before = row.pairs > 0 ? row.warmup + 1 : row.warmup;
    CHECK(first_bwd - order.begin() == before);
  }
}

TEST_CASE("one stage pairs every backward but the last with the next forward") {
  CHECK(text(training_order({1, 1, 3, 1, true}, 0)) == "F0c0 F1c0|B0c0 F2c0|B1c0 B2c0");
  CHECK(text(training_order({1, 1, 1, 1, true}, 0)) == "F0c0 B0c0");
  CHECK(text(training_order({1, 1, 2, 1, false}, 0)) == "F0c0 B0c0 F1c0 B1c0");
}

TEST_CASE("every task runs once, backward after forward, and pairs are independent") {
  for (const bool overlap : {false, true})
    for (const int pp : {1, 2, 3, 4})
      for (const int vpp : {1, 2, 3})
        for (const int group : {pp, pp + 1, 2 * pp})
          for (const int microbatches : {1, 2, 3, 7, 12})
            for (int stage = 0; stage < pp; ++stage) {
              const std::vector<Task> order =
                  training_order({pp, vpp, microbatches, group, overlap}, stage);
              std::set<std::tuple<Dir, int, int>> seen;
              for (std::size_t i = 0; i < order.size(); ++i) {
                const Task& t = order[i];
                REQUIRE(seen.insert({t.dir, t.chunk, t.microbatch}).second);
                if (t.dir == Dir::kBwd)
                  REQUIRE(seen.count({Dir::kFwd, t.chunk, t.microbatch}) == 1);
                if (!t.paired) continue;
                const Task& partner = order.at(i + 1);
                REQUIRE(t.dir == Dir::kFwd);
                REQUIRE(partner.dir == Dir::kBwd);
                REQUIRE((partner.chunk != t.chunk || partner.microbatch != t.microbatch));
              }
              REQUIRE(static_cast<int>(seen.size()) == 2 * vpp * microbatches);
            }
}

TEST_CASE("a stage outside the pipeline is an error") {
  CHECK_THROWS_AS(training_order({2, 1, 4, 2, true}, 2), Error);
  CHECK_THROWS_AS(warmup_tasks({2, 1, 0, 2, true}, 0), Error);
}
