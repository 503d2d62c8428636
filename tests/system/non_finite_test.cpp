// Where a value that is not finite comes from, when only some ranks hold it; that no checkpoint
// holds one; and what is said.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "../unit/base/temp_folder.h"
#include "engine.h"
#include "non_finite.h"
#include "tandem/comm/shared_error.h"
#include "tandem/config/load.h"
#include "tandem/train/state_io.h"

namespace tandem {
namespace {

using Catch::Contains;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RunConfig small(int ranks, const std::vector<std::string>& overrides) {
  return resolve(parse_config(R"({"model": {"layers": 2, "hidden": 16, "heads": 2, "kv_heads": 1,
                                            "head_dim": 8, "experts": 2, "topk": 1, "moe_ffn": 8,
                                            "norm_topk_prob": false, "vocab": 32},
                                  "train": {"device": "cpu", "seq_len": 8}})",
                              "the test's config", overrides),
                 ranks);
}

void put(Engine& engine, const View& to, float value) {
  Stream& stream = engine.lanes.stream(Lane::kDp);
  engine.device->copy(stream, to.slice(0, 1).data, &value, sizeof(value));
  stream.sync();
}

void save(World& world, Engine& engine, std::int64_t step,
          std::optional<std::int64_t> newest = {}) {
  save_state(world, *engine.device, engine.lanes.stream(Lane::kDp), engine.params, engine.optimizer,
             engine.config,
             {step, step * engine.config.train.global_batch, engine.config.train.seed,
              to_json(engine.config)},
             newest);
}

// What loading says, with its exit code; "" where it succeeds.
std::string refusal(const RunConfig& config) {
  std::string said;
  run_as_threads(config.world(), [&](World& world) {
    Log log(world.rank(), /*quiet=*/true);
    Engine engine(world, config, sound_programs(config, ProgramKind::kTraining), log);
    try {
      (void)load_state(world, *engine.device, engine.lanes.stream(Lane::kDp), engine.params,
                       engine.optimizer, config, log);
    } catch (const SharedError& error) {
      if (world.rank() == 0)
        said = fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    }
  });
  return said;
}

std::string said_of(const NonFiniteStep& step, const RunConfig& config) {
  return describe(step, config, LossScaler(config.optimizer, config.train.dtype));
}

TEST_CASE("a state that is not finite on one rank is not saved, and all ranks say so") {
  for (const auto part : {&OptimizerShard::master, &OptimizerShard::m, &OptimizerShard::v}) {
    const TempFolder folder;
    const RunConfig config = small(2, {"parallel.pp=2", "checkpoint.dir=" + (folder / "c")});
    std::vector<std::string> said(2);
    run_as_threads(2, [&](World& world) {
      Log log(world.rank(), /*quiet=*/true);
      Engine engine(world, config, sound_programs(config, ProgramKind::kTraining), log);
      save(world, engine, 1);
      if (world.rank() == 1) put(engine, engine.optimizer.shards()[0].*part, kNan);
      try {
        save(world, engine, 2, 1);
      } catch (const SharedError& error) {
        CHECK(error.code() == ExitCode::kTraining);
        said[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    CHECK_THAT(said[0], Contains("step 2 is not saved: on rank 1, layers.1.") &&
                            Contains(": element 0 of ") &&
                            Contains("is nan. " + config.checkpoint.dir + " keeps the") &&
                            Contains("An update since step 1, the newest checkpoint, brought it"));
    CHECK(said[1] == said[0]);
    CHECK(find_checkpoint(config.checkpoint.dir)->info.step == 1);
    CHECK(refusal(config) == "");
  }
}

TEST_CASE("weights that the dtype of the parameters does not hold are neither saved nor loaded") {
  const TempFolder folder;
  const RunConfig fp32 = small(1, {"checkpoint.dir=" + (folder / "c")});
  const RunConfig fp16 = small(1, {"checkpoint.dir=" + (folder / "c"), "train.dtype=fp16"});
  for (const RunConfig& config : {fp16, fp32})
    run_as_threads(1, [&](World& world) {
      Log log(world.rank(), /*quiet=*/true);
      Engine engine(world, config, sound_programs(config, ProgramKind::kTraining), log);
      put(engine, engine.optimizer.shards()[0].master, 65519.0F);  // rounds to the largest of fp16
      CHECK_NOTHROW(save(world, engine, 1));
      put(engine, engine.optimizer.shards()[0].master, 65520.0F);
      if (config.train.dtype == DType::kF16)
        CHECK_THROWS_WITH(save(world, engine, 2), Contains("is 65520, infinite in fp16"));
      else
        CHECK_NOTHROW(save(world, engine, 2));
    });
  CHECK(refusal(fp32) == "");
  CHECK_THAT(refusal(fp16),
             Contains("2: ") &&
                 Contains("step-00000002 holds a weight that is too large for train.dtype=fp16") &&
                 Contains("is 65520, infinite in fp16; set train.dtype=fp32, with which it was") &&
                 !Contains("remove"));
}

TEST_CASE("the first value that is not finite is found wherever it lies") {
  std::vector<float> values(10000, -3.0F), zero(values.size());
  const std::vector<StatePiece> pieces = {{"w", 20000, 5000, values, zero, zero}};
  CHECK(first_non_finite(pieces, DType::kBF16).empty());
  for (const std::size_t at : {0U, 4095U, 4096U, 9999U})
    for (const float bad : {kNan, -kNan, -std::numeric_limits<float>::infinity()}) {
      values[at] = bad;
      CHECK_THAT(first_non_finite(pieces, DType::kF32),
                 Catch::StartsWith(fmt::format("w: element {} of master is ", 5000 + at)));
      values[at] = -3.0F;
    }
  for (const float v : {-1.0F, -std::numeric_limits<float>::denorm_min(), -kNan}) {
    zero[4098] = v;  // m may be negative, the mean of squares not
    std::vector<float> none(values.size(), -0.0F);
    const std::vector<StatePiece> as_m = {{"w", 20000, 5000, values, zero, none}};
    CHECK(first_non_finite(as_m, DType::kF32).empty() != std::isnan(v));
    const std::vector<StatePiece> as_v = {{"w", 20000, 5000, values, none, zero}};
    CHECK_THAT(first_non_finite(as_v, DType::kF32),
               Catch::StartsWith("w: element 9098 of v is ") &&
                   Contains(std::isnan(v) ? "nan" : "negative"));
  }
  zero[4098] = 0.0F;
  values[7] = std::numeric_limits<float>::max();  // rounds to infinity in bf16
  CHECK(first_non_finite(pieces, DType::kF32).empty());
  CHECK_THAT(first_non_finite(pieces, DType::kBF16), Contains("infinite in bf16"));
}

TEST_CASE("what is said of a step fits what was found") {
  const RunConfig config =
      small(1, {"model.aux_loss_coef=1e37", "model.z_loss_coef=0", "checkpoint.dir=c"});
  const std::string parameter = said_of({4, kNan, kNan, {"", "parameter embedding"}, 2}, config);
  CHECK_THAT(parameter, Contains("step 5: ") && Contains("rank 1: parameter embedding") &&
                            Contains("An update since step 2, the newest checkpoint, brought it") &&
                            Contains("or lower optimizer.clip; ") &&
                            Contains("from c/step-00000002, or, where that folder is removed") &&
                            !Contains("left as they were") && !Contains("aux_loss_coef"));
  CHECK_THAT(said_of({4, kNan, kNan, {"parameter embedding"}, {}}, config),
             Contains("An update since the start brought it") && !Contains("folder"));
  CHECK_THAT(said_of({4, 1.0, HUGE_VAL, {""}, {}}, small(1, {"optimizer.clip=0"})),
             Contains("or set optimizer.clip"));
  CHECK_THAT(parameter, !Contains("checkpoint.resume"));
  CHECK_THAT(said_of({4, kNan, kNan, {"parameter embedding"}, 2},
                     small(1, {"checkpoint.dir=c", "checkpoint.resume=false"})),
             Contains("with checkpoint.resume=true the run goes on from c/step-00000002"));
  const std::string nowhere = said_of({0, 1.0, HUGE_VAL, {""}, {}}, config);
  CHECK_THAT(nowhere, Contains("none found in a second run") && Contains("model.init_std") &&
                          Contains("lower model.aux_loss_coef = 1e+37") && !Contains("z_loss"));
  CHECK_THAT(said_of({0, kNan, kNan, {"layer 0, router_fwd"}, {}}, config),
             Contains("left as they were") && !Contains("aux_loss_coef"));
}

TEST_CASE("a lower loss scale is advised only where the loss is finite") {
  const RunConfig config = small(1, {"train.dtype=fp16"});
  CHECK_THAT(said_of({0, 3.0, HUGE_VAL, {"layer 0, mlp_bwd"}, {}}, config),
             Contains("a lower optimizer.loss_scale") && Contains("train.dtype=bf16"));
  CHECK_THAT(said_of({0, kNan, kNan, {"layer 0, mlp_fwd"}, {}}, config),
             !Contains("loss_scale") && Contains("or set train.dtype=bf16"));
}

TEST_CASE(
    "a parameter that is not finite is found without a step that other ranks would wait for") {
  const RunConfig config = small(2, {"parallel.pp=2"});
  std::vector<std::string> found(2);
  run_as_threads(2, [&](World& world) {
    Log log(world.rank(), /*quiet=*/true);
    Engine engine(world, config, sound_programs(config, ProgramKind::kTraining), log);
    (void)engine.train_step(engine.step_input(0, 1e-3));
    if (world.rank() == 0) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      Stream& stream = engine.lanes.stream(Lane::kCompute);
      const View embedding = engine.params.value(ParamKind::kEmbedding, -1);
      engine.device->copy(stream, embedding.slice(3, 1).data, &nan, sizeof(nan));
      stream.sync();
    }
    found[static_cast<std::size_t>(world.rank())] = engine.find_non_finite(1);
  });
  CHECK(found == std::vector<std::string>{"parameter embedding", ""});
}

}  // namespace
}  // namespace tandem
