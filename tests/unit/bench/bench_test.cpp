// Every benchmark on the CPU with a tiny model: sane figures, the right work, readable output.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "benches.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/bench/bench.h"
#include "tandem/config/load.h"
#include "tandem/model/cost.h"

namespace tandem {
namespace {

using bench::Kind;

RunConfig smoke(const std::vector<std::string>& overrides, int ranks) {
  std::vector<std::string> all = {"parallel.pp=1", "parallel.dp=0"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return resolve(load_config(TANDEM_SOURCE_DIR "/configs/smoke.json", all), ranks);
}

bench::Report run(Kind kind, const RunConfig& config, int ranks = 1) {
  bench::Report report;
  run_as_threads(ranks, [&](World& world) {
    Log log(world.rank(), true);
    bench::Report mine = bench::run(world, kind, config, 2, log);
    if (world.rank() == 0) report = std::move(mine);
  });
  return report;
}

void require_sane(const bench::Report& report) {
  REQUIRE(report.limits.size() == 2);
  REQUIRE_FALSE(report.rows.empty());
  for (const auto* rows : {&report.limits, &report.rows})
    for (const bench::Row& row : *rows) {
      INFO(row.group << " " << row.name);
      CHECK((std::isfinite(row.ms) && row.ms > 0));
      CHECK((row.min_ms > 0 && row.min_ms <= row.ms));
      CHECK((std::isfinite(row.rate) && row.rate > 0));
      CHECK_FALSE(row.unit.empty());
      for (const auto& [name, value] : row.more) {
        const bool applies = name != "hidden_pct" || report.ranks > 1;
        CHECK((applies ? std::isfinite(value) && value >= 0 : std::isnan(value)));
      }
    }
}

double flops_of(const bench::Report& report, const std::string& group, bool totals = false) {
  double sum = 0;
  for (const bench::Row& row : report.rows)
    if (row.group == group && (row.name == "total") == totals) sum += row.flops;
  return sum;
}

}  // namespace

TEST_CASE("benchmarks of one rank give sane rows and JSON") {
  const RunConfig config = smoke({"parallel.ep=1"}, 1);
  for (const Kind kind : {Kind::kGemm, Kind::kGrouped, Kind::kAttention, Kind::kLayer}) {
    const bench::Report report = run(kind, config);
    INFO(report.bench);
    require_sane(report);
    const Json json = parse_json(bench::to_json(report, "tandem bench x", config), "json");
    CHECK(json.at("rows", "json").as_array("rows").size() == report.rows.size());
    CHECK(json.at("command", "json").as_string("command") == "tandem bench x");
    CHECK(parse_config(json.at("config", "json").dump(), "config", {}) == config);
    const std::string table = bench::to_table(report);
    for (const bench::Row& row : report.rows) CHECK(table.find(row.shape) != std::string::npos);
  }
}

TEST_CASE("the products of a layer cost what the model says its nodes cost") {
  for (const char* ep : {"parallel.ep=1", "parallel.ep=2"}) {
    const RunConfig config = smoke({ep}, 0);
    const ModelDims dims = make_dims(config);
    const auto routed = static_cast<double>(dims.routed());
    const bench::Report report = run(Kind::kLayer, config);
    for (const auto& [kind, phase] : {std::pair{NodeKind::kAttention, Phase::kFwd},
                                      {NodeKind::kExperts, Phase::kFwd},
                                      {NodeKind::kExperts, Phase::kBwdInput},
                                      {NodeKind::kExperts, Phase::kBwdWeight},
                                      {NodeKind::kAttention, Phase::kBwdWeight},
                                      {NodeKind::kHead, Phase::kFwd}}) {
      std::vector<std::string> groups = {fmt::format("{}_{}", name_of(kind), name_of(phase))};
      if (kind == NodeKind::kExperts && phase == Phase::kBwdWeight)
        groups = {groups[0] + ", storing", groups[0] + ", adding"};
      for (const std::string& group : groups) {
        INFO(group << " " << ep);
        CHECK(flops_of(report, group) == node_flops(kind, phase, true, dims, routed));
        CHECK(flops_of(report, group, true) == flops_of(report, group));
      }
    }
  }
}

TEST_CASE("adding to the gradients of experts reads them, storing does not") {
  const RunConfig config = smoke({"parallel.ep=1"}, 1);
  const ModelDims d = make_dims(config);
  const bench::Report report = run(Kind::kLayer, config);
  const auto bytes_of = [&](const std::string& group) {
    double sum = 0;
    for (const bench::Row& row : report.rows)
      if (row.group == group && row.name != "total") sum += row.bytes;
    return sum;
  };
  const double gradients = 4.0 * d.local_experts * 3 * d.moe_ffn * d.hidden;  // fp32
  CHECK(bytes_of("experts_bwd_weight, storing") > gradients);
  CHECK(bytes_of("experts_bwd_weight, adding") - bytes_of("experts_bwd_weight, storing") ==
        gradients);
}

TEST_CASE("bench gemm times the products the node bodies launch") {
  for (const char* dtype : {"train.dtype=fp32", "train.dtype=bf16"}) {
    const RunConfig config = smoke({"parallel.ep=1", "model.first_k_dense=1", dtype}, 1);
    const auto products = [&](Kind kind) {  // shape and bytes of each, without repetition
      std::set<std::pair<std::string, double>> all;
      for (const bench::Row& row : run(kind, config).rows)
        if (kind == Kind::kGemm || row.name == "gemm") all.emplace(row.shape, row.bytes);
      return all;
    };
    INFO(dtype);
    CHECK(products(Kind::kGemm) == products(Kind::kLayer));
  }
}

TEST_CASE("a model with dense and with MoE layers shows both") {
  const RunConfig config = smoke({"parallel.ep=1", "model.first_k_dense=1"}, 1);
  const bench::Report report = run(Kind::kLayer, config);
  require_sane(report);
  const ModelDims dims = make_dims(config);
  CHECK(flops_of(report, "mlp_fwd") == node_flops(NodeKind::kMlp, Phase::kFwd, false, dims, 0));
  CHECK(flops_of(report, "attention_fwd (moe)") > flops_of(report, "attention_fwd (dense)"));
}

TEST_CASE("expert counts sum to the rows under every spread") {
  using bench::Spread;
  for (const Spread spread : {Spread::kBalanced, Spread::kRandom, Spread::kEmptyExpert})
    for (const std::int64_t experts : {1, 3, 128}) {
      const auto counts = bench::expert_counts(spread, experts, 32769);
      CHECK(std::accumulate(counts.begin(), counts.end(), 0) == 32769);
      CHECK(*std::min_element(counts.begin(), counts.end()) >= 0);
    }
  CHECK(bench::expert_counts(Spread::kEmptyExpert, 8, 1000).back() == 0);
  CHECK(bench::expert_counts(Spread::kBalanced, 8, 1000) == std::vector<std::int32_t>(8, 125));
  const auto uneven = bench::expert_counts(Spread::kRandom, 128, 32768);
  CHECK(*std::max_element(uneven.begin(), uneven.end()) >
        2 * *std::min_element(uneven.begin(), uneven.end()));
  CHECK(bench::offsets_of({2, 0, 3}) == std::vector<std::int32_t>{0, 2, 2, 5});
}

TEST_CASE("a slice trains on all ranks and counts FLOPs as the model does") {
  for (const int ranks : {1, 2}) {
    const RunConfig config = smoke({fmt::format("parallel.ep={}", ranks)}, ranks);
    const bench::Report report = run(Kind::kSlice, config, ranks);
    require_sane(report);
    REQUIRE(report.rows.size() == 3);  // two steps and their medians
    CHECK(report.rows.back().name == "median");
    const double step = flops_per_token(config) * config.train.global_batch * config.train.seq_len;
    for (const bench::Row& row : report.rows) {
      if (row.name == "median") continue;  // its figures need not come from one step
      CHECK(row.flops == Approx(step));
      REQUIRE(row.more.at(0).first == "mb_ms");
      // One rank's work lies within its step; of several, the slowest may have begun before rank 0.
      if (ranks == 1)
        CHECK(row.more.at(0).second * config.microbatches() + row.more.at(1).second < row.ms);
    }
  }
}

TEST_CASE("an all-to-all runs on one and on several ranks") {
  const RunConfig config = smoke({"parallel.ep=1"}, 1);
  for (const int ranks : {1, 2}) {
    const bench::Report report = run(Kind::kAllToAll, config, ranks);
    require_sane(report);
    CHECK(report.transport == "host");
    CHECK(report.rows.front().name == "64 KiB");
    CHECK(report.rows.back().name == "4 MiB");
    CHECK(report.rows.back().bytes == (4 << 20) / ranks);  // one rank sends to itself
  }
}

TEST_CASE("names of benchmarks") {
  CHECK(bench::kind_from_name("layer") == Kind::kLayer);
  CHECK(bench::takes_ranks(Kind::kSlice));
  CHECK_FALSE(bench::takes_ranks(Kind::kGemm));
  try {
    bench::kind_from_name("grouepd");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    CHECK(std::string(error.what()).find("did you mean grouped") != std::string::npos);
    CHECK(std::string(error.what()).find("alltoall") != std::string::npos);
  }
}

}  // namespace tandem
