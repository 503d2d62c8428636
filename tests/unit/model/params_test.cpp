#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/model/memory.h"
#include "tandem/model/params.h"

namespace tandem {
namespace {

using test::small_run;

ParamTable table_of(const RunConfig& config, int rank) {
  return make_params(config, make_grid(config), make_partition(config), rank);
}

std::vector<std::string> names_of(const ParamTable& table) {
  std::vector<std::string> names;
  for (const Param& param : table.params) names.push_back(param.name);
  return names;
}

std::vector<float> values_of(const Param& param, std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  init_values(param, 7, begin, count, values.data());
  return values;
}

Param big_matrix(double init_std) {
  Param param;
  param.name = "big";
  param.rows = param.global_size = 1'000'000;
  param.init_std = init_std;
  return param;
}

}  // namespace

TEST_CASE("parameter counts are the published ones") {
  CHECK(count_params(test::preset("qwen3-30b-a3b")).total == 30'532'122'624);
  CHECK(count_params(test::preset("qwen3-235b-a22b")).total == 235'093'634'560);
  CHECK(count_params(test::preset("mixtral-8x7b")).total == 46'702'792'704);
  CHECK(count_params(test::preset("olmoe-1b-7b")).total == 6'919'161'856);
  // Active: the billions in the models' names and cards.
  CHECK(count_params(test::preset("qwen3-30b-a3b")).active / 1e9 == Approx(3.3).margin(0.1));
  CHECK(count_params(test::preset("qwen3-235b-a22b")).active / 1e9 == Approx(22.0).margin(0.5));
  CHECK(count_params(test::preset("mixtral-8x7b")).active / 1e9 == Approx(12.9).margin(0.05));
  CHECK(count_params(test::preset("olmoe-1b-7b")).active / 1e9 == Approx(1.3).margin(0.05));
  // Exactly: all but topk of the experts are idle.
  CHECK(count_params(test::preset("qwen3-30b-a3b")).active ==
        30'532'122'624 - 48LL * 120 * 3 * 768 * 2048);
}

TEST_CASE("a tied head counts once and a dense model is all active") {
  ModelConfig model = small_run(1, 1, 1, 1).model;
  const std::int64_t untied = count_params(model).total;
  model.tied_embeddings = true;
  CHECK(count_params(model).total == untied - 50 * 24);
  model.experts = 0;
  model.first_k_dense = model.layers;
  CHECK(count_params(model).total == count_params(model).active);
}

TEST_CASE("names, order and shapes of the parameters of a rank") {
  RunConfig config = small_run(1, 1, 1, 1);
  config.model.layers = 2;
  config.model.qk_norm = QkNorm::kFull;
  const ParamTable table = table_of(config, 0);
  CHECK(names_of(table) == std::vector<std::string>{"embedding",
                                                    "layers.0.attn_norm",
                                                    "layers.0.qkv",
                                                    "layers.0.q_norm",
                                                    "layers.0.k_norm",
                                                    "layers.0.attn_out",
                                                    "layers.0.mlp_norm",
                                                    "layers.0.mlp.gate_up",
                                                    "layers.0.mlp.down",
                                                    "layers.1.attn_norm",
                                                    "layers.1.qkv",
                                                    "layers.1.q_norm",
                                                    "layers.1.k_norm",
                                                    "layers.1.attn_out",
                                                    "layers.1.mlp_norm",
                                                    "layers.1.router",
                                                    "layers.1.experts.gate_up",
                                                    "layers.1.experts.down",
                                                    "final_norm",
                                                    "head"});
  const auto shape = [&](ParamKind kind, int layer) {
    const Param* param = table.find(kind, layer);
    REQUIRE(param != nullptr);
    CHECK(param->kind == kind);
    CHECK(param->layer == layer);
    return std::pair(param->rows, param->cols);
  };
  using Shape = std::pair<std::int64_t, std::int64_t>;
  CHECK(shape(ParamKind::kEmbedding, -1) == Shape(50, 24));
  CHECK(shape(ParamKind::kQkv, 1) == Shape(60 + 20 + 20, 24));
  CHECK(shape(ParamKind::kQNorm, 0) == Shape(60, 1));
  CHECK(shape(ParamKind::kKNorm, 1) == Shape(20, 1));
  CHECK(shape(ParamKind::kAttnOut, 0) == Shape(24, 60));
  CHECK(shape(ParamKind::kRouter, 1) == Shape(4, 24));
  CHECK(shape(ParamKind::kExpertGateUp, 1) == Shape(4 * 2 * 14, 24));
  CHECK(shape(ParamKind::kExpertDown, 1) == Shape(4 * 24, 14));
  CHECK(shape(ParamKind::kMlpGateUp, 0) == Shape(2 * 34, 24));
  CHECK(shape(ParamKind::kMlpDown, 0) == Shape(24, 34));
  CHECK(shape(ParamKind::kFinalNorm, -1) == Shape(24, 1));
  CHECK(shape(ParamKind::kHead, -1) == Shape(50, 24));
  CHECK(table.find(ParamKind::kRouter, 0) == nullptr);    // layer 0 is dense
  CHECK(table.find(ParamKind::kMlpDown, 1) == nullptr);   // layer 1 is not
  CHECK(table.find(ParamKind::kAttnNorm, 2) == nullptr);  // no such layer
}

TEST_CASE("QK norm per head has one head's width, none has no parameter") {
  RunConfig config = small_run(1, 1, 1, 1);
  CHECK(table_of(config, 0).find(ParamKind::kQNorm, 0) == nullptr);
  config.model.qk_norm = QkNorm::kPerHead;
  CHECK(table_of(config, 0).find(ParamKind::kQNorm, 0)->rows == 10);
  CHECK(table_of(config, 0).find(ParamKind::kKNorm, 0)->rows == 10);
}

TEST_CASE("the ranks of a pp2 vpp2 dp4 ep2 layout hold every element of the model") {
  const RunConfig config = small_run(2, 2, 4, 2);
  const RankGrid grid = make_grid(config);
  // Copies of every element, by tensor and part: edp replicas of an expert part, dp of the rest.
  std::map<std::string, std::map<std::int64_t, std::int64_t>> parts;  // name -> begin -> end
  std::map<std::pair<std::string, std::int64_t>, int> copies;
  std::map<std::string, std::int64_t> whole;
  for (int rank = 0; rank < grid.world(); ++rank) {
    for (const Param& param : table_of(config, rank).params) {
      parts[param.name][param.global_begin] = param.global_begin + param.size();
      whole[param.name] = param.global_size;
      const int replicas = param.group == ParamGroup::kExpert ? grid.edp() : grid.dp;
      CHECK(++copies[{param.name, param.global_begin}] <= replicas);
    }
  }
  std::int64_t total = 0;
  for (const auto& [name, ranges] : parts) {
    CAPTURE(name);
    const bool expert = name.find("experts") != std::string::npos;
    CHECK(ranges.size() == (expert ? 2U : 1U));
    std::int64_t next = 0;
    for (const auto& [begin, end] : ranges) {
      CHECK(begin == next);
      CHECK(copies[{name, begin}] == (expert ? grid.edp() : grid.dp));
      next = end;
    }
    CHECK(next == whole[name]);
    total += next;
  }
  CHECK(total == count_params(config.model).total);
}

TEST_CASE("a stage holds its chunks' layers, the ends embedding and head") {
  RunConfig config = small_run(2, 2, 1, 1);
  config.parallel.partition = {2, 3, 0, 3};
  const ParamTable first = table_of(config, 0), second = table_of(config, 1);
  CHECK(first.find(ParamKind::kEmbedding, -1) != nullptr);
  CHECK(first.find(ParamKind::kHead, -1) == nullptr);
  CHECK(first.find(ParamKind::kQkv, 1)->chunk == 0);
  CHECK(first.find(ParamKind::kQkv, 2) == nullptr);
  CHECK(first.bucket(0, ParamGroup::kExpert) != nullptr);
  CHECK(first.bucket(1, ParamGroup::kDense) == nullptr);  // its second chunk is empty
  CHECK(second.find(ParamKind::kEmbedding, -1) == nullptr);
  CHECK(second.find(ParamKind::kQkv, 4)->chunk == 0);
  CHECK(second.find(ParamKind::kQkv, 7)->chunk == 1);
  CHECK(second.find(ParamKind::kHead, -1)->chunk == 1);
  // Every parameter of every rank is found again by kind and layer.
  for (const ParamTable* table : {&first, &second})
    for (const Param& param : table->params) CHECK(table->find(param.kind, param.layer) == &param);
}

TEST_CASE("parameters tile their bucket and equal slices tile its padding") {
  const RunConfig config = small_run(2, 2, 6, 2);
  for (int rank = 0; rank < 12; ++rank) {
    const ParamTable table = table_of(config, rank);
    std::map<std::pair<int, ParamGroup>, std::int64_t> next;
    for (const Param& param : table.params) {
      CHECK(param.offset == next[std::pair(param.chunk, param.group)]);
      next[std::pair(param.chunk, param.group)] += param.size();
    }
    REQUIRE(table.buckets.size() == next.size());
    auto expected = next.begin();  // by chunk, dense before expert
    for (const ParamBucket& bucket : table.buckets) {
      CHECK(std::pair(bucket.chunk, bucket.group) == expected->first);
      CHECK(bucket.size == expected->second);
      CHECK(bucket.members == (bucket.group == ParamGroup::kExpert ? 3 : 6));
      CHECK(bucket.padded % (bucket.members * 16) == 0);
      CHECK(bucket.padded >= bucket.size);
      CHECK(bucket.padded - bucket.size < bucket.members * 16);
      CHECK(table.bucket(bucket.chunk, bucket.group) == &bucket);
      ++expected;
    }
  }
}

TEST_CASE("initial spread, fill and decay of every kind of parameter") {
  RunConfig config = small_run(1, 1, 1, 1);
  config.model.qk_norm = QkNorm::kPerHead;
  config.model.init_std = 0.5;
  config.optimizer.decay_embeddings = false;
  const ParamTable table = table_of(config, 0);
  const double scaled = 0.5 / std::sqrt(2.0 * 8);
  const std::set<ParamKind> norms = {ParamKind::kAttnNorm, ParamKind::kQNorm, ParamKind::kKNorm,
                                     ParamKind::kMlpNorm, ParamKind::kFinalNorm};
  const std::set<ParamKind> outputs = {ParamKind::kAttnOut, ParamKind::kExpertDown,
                                       ParamKind::kMlpDown};
  std::set<ParamKind> seen;
  for (const Param& param : table.params) {
    CAPTURE(param.name);
    seen.insert(param.kind);
    const bool norm = norms.count(param.kind) != 0;
    CHECK(param.decay == (!norm && param.kind != ParamKind::kEmbedding));
    if (norm) {
      CHECK(values_of(param, 0, param.size()) ==
            std::vector<float>(static_cast<std::size_t>(param.size()), 1.0F));
    } else {
      CHECK(param.init_std == Approx(outputs.count(param.kind) != 0 ? scaled : 0.5));
    }
  }
  CHECK(seen.size() == static_cast<std::size_t>(kNumParamKinds));
  config.optimizer.decay_embeddings = true;
  CHECK(table_of(config, 0).find(ParamKind::kEmbedding, -1)->decay);
}

TEST_CASE("a tied head is a second copy of the embedding") {
  RunConfig config = small_run(2, 1, 1, 1);
  config.model.tied_embeddings = true;
  config.optimizer.decay_embeddings = false;
  const ParamTable first = table_of(config, 0), last = table_of(config, 1);
  const Param* embedding = first.find(ParamKind::kEmbedding, -1);
  const Param* head = last.find(ParamKind::kHead, -1);
  REQUIRE(head != nullptr);
  CHECK(head->name == "embedding");
  CHECK_FALSE(head->decay);
  CHECK(values_of(*head, 0, 100) == values_of(*embedding, 0, 100));
}

TEST_CASE("an expert's initial values do not depend on the layout") {
  const Param* whole = nullptr;
  const ParamTable one = table_of(small_run(1, 1, 1, 1), 0);
  whole = one.find(ParamKind::kExpertDown, 5);
  const std::vector<float> values = values_of(*whole, 0, whole->size());
  const RunConfig config = small_run(2, 2, 4, 4);
  int parts = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const ParamTable table = table_of(config, rank);
    const Param* part = table.find(ParamKind::kExpertDown, 5);
    if (part == nullptr) continue;
    ++parts;
    const auto begin = values.begin() + part->global_begin;
    CHECK(values_of(*part, part->global_begin, part->size()) ==
          std::vector<float>(begin, begin + part->size()));
  }
  CHECK(parts == 4);
}

TEST_CASE("an element's initial value does not depend on how the tensor is cut") {
  const Param param = big_matrix(0.02);
  const std::vector<float> whole = values_of(param, 0, 1000);
  for (const std::int64_t begin : {0, 1, 2, 499, 998, 999, 1000})
    for (const std::int64_t count : {0, 1, 2, 3, 501}) {
      if (begin + count > 1000) continue;
      CAPTURE(begin, count);
      const auto at = whole.begin() + begin;
      CHECK(values_of(param, begin, count) == std::vector<float>(at, at + count));
    }
  // Philox over (seed, name, element). One rounding of the product here, two on the right: 1 ulp.
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const float expected = 0.02F * philox_normal(7, stream_id("big"), i);
    CHECK(whole[i] == Approx(expected).epsilon(std::ldexp(1.0, -22)).margin(0.0));
  }
}

TEST_CASE("initial values are normal") {
  const double std_wanted = 0.02;
  const std::vector<float> values = values_of(big_matrix(std_wanted), 0, 1'000'000);
  const auto n = static_cast<double>(values.size());
  double sum = 0.0, squares = 0.0;
  int beyond_two = 0;
  for (const float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
    beyond_two += std::abs(v) > 2.0 * std_wanted ? 1 : 0;
  }
  const double mean = sum / n;
  // Five standard errors each.
  CHECK(std::abs(mean) < 5.0 * std_wanted / std::sqrt(n));
  CHECK(std::abs(std::sqrt(squares / n - mean * mean) - std_wanted) <
        5.0 * std_wanted / std::sqrt(2.0 * n));
  const double share = std::erfc(std::sqrt(2.0));  // P(|z| > 2)
  CHECK(std::abs(beyond_two / n - share) < 5.0 * std::sqrt(share * (1.0 - share) / n));
}

TEST_CASE("elements outside the tensor and experts that do not divide are refused") {
  const Param param = big_matrix(0.02);
  float value = 0.0F;
  CHECK_THROWS_AS(init_values(param, 1, -1, 1, &value), Error);
  CHECK_THROWS_AS(init_values(param, 1, param.global_size, 1, &value), Error);
  const RunConfig config = small_run(1, 1, 3, 3);
  CHECK_THROWS_WITH(table_of(config, 0), Catch::Contains("divides the experts"));
}

TEST_CASE("bytes of parameters, gradients and the optimizer's shard") {
  const RunConfig config = small_run(1, 1, 4, 2);
  const ParamTable table = table_of(config, 3);
  const std::int64_t dense = table.bucket(0, ParamGroup::kDense)->padded;
  const std::int64_t expert = table.bucket(0, ParamGroup::kExpert)->padded;
  const MemoryPlan plan = static_memory(table, DType::kBF16);
  CHECK(plan.params == (dense + expert) * 2);
  CHECK(plan.grads == (dense + expert) * 4);
  CHECK(plan.optimizer == dense / 4 * 12 + expert / 2 * 12);
  CHECK(plan.saved == 0);
  CHECK(plan.total() == plan.params + plan.grads + plan.optimizer);
  CHECK(static_memory(table, DType::kF32).params == plan.grads);
  CHECK(static_memory(table, DType::kF16).total() == plan.total());
}

}  // namespace tandem
