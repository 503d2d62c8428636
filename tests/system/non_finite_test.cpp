// Where a value that is not finite comes from, when only some ranks hold it.
#include <catch2/catch.hpp>

#include <limits>

#include "engine.h"
#include "tandem/config/load.h"

namespace tandem {
namespace {

TEST_CASE("a parameter that is not finite is found without a step that other ranks would wait for") {
  const RunConfig config =
      resolve(parse_config(R"({"model": {"layers": 2, "hidden": 16, "heads": 2, "kv_heads": 1,
                                         "head_dim": 8, "experts": 2, "topk": 1, "moe_ffn": 8,
                                         "norm_topk_prob": false, "vocab": 32},
                               "parallel": {"pp": 2}, "train": {"device": "cpu", "seq_len": 8}})",
                           "the test's config", {}),
              2);
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
