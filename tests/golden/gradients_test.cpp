// One training step of the engine against an independent float64 model (scripts/reference): the
// losses and the gradient of every parameter, over configurations that cover the model's choices.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/json.h"
#include "tandem/ckpt/safetensors.h"
#include "tandem/config/load.h"
#include "tandem/runtime/executor.h"
#include "tandem/schedule/check.h"
#include "tandem/schedule/lower.h"

namespace tandem {
namespace {

constexpr double kTolerance = 1e-5;  // what the engine promises in fp32, relative to the largest

std::string folder() {
  return std::string(TANDEM_SOURCE_DIR) + "/tests/golden/numerics/";
}

struct Case {
  std::string name;
  double cross_entropy, balance_loss;
};

std::vector<Case> read_cases() {
  const std::string path = folder() + "reference.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Case> cases;
  const Json root = parse_json(text.str(), path);
  for (const Json& entry : root.at("cases", path).as_array(path))
    cases.push_back({entry.at("name", path).as_string("name"),
                     entry.at("cross_entropy", path).as_double("cross_entropy"),
                     entry.at("balance_loss", path).as_double("balance_loss")});
  return cases;
}

template <class T>
std::vector<T> read(const SafetensorsReader& reader, const std::string& name) {
  const TensorInfo* info = reader.find(name);
  if (info == nullptr) FAIL("the reference has no tensor " << name);
  std::vector<T> values((info->end - info->begin) / sizeof(T));
  reader.read(*info, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

void copy_in(Device& device, Stream& stream, const View& to, const void* from, std::size_t bytes) {
  REQUIRE(to.bytes() == bytes);
  device.copy(stream, to.data, from, bytes);
  // hazard: the copy before its host source is freed
  stream.sync();
}

// Everything one rank needs for a step, with the reference's parameters and tokens in place.
class Rank {
 public:
  Rank(World& world, const RunConfig& config, const SafetensorsReader& reference)
      : config_(config),
        device_(make_cpu_device({.threads = 2})),
        grid_(make_grid(config_)),
        lanes_(*device_, grid_.pp),
        comms_(make_rank_comms(world, grid_, config_.model.tied_embeddings)),
        params_(*device_, lanes_.stream(Lane::kCompute),
                make_params(config_, grid_, make_partition(config_), world.rank()),
                config_.train.dtype, config_.train.seed),
        timeline_(*device_),
        program_(build_program(lower_options(config_), ProgramKind::kTraining, 0)) {
    load_parameters(reference);
    load_batches(reference);
    optimizer_ =
        std::make_unique<Optimizer>(*device_, lanes_.stream(Lane::kDp), params_, config_.optimizer,
                                    config_.model.tied_embeddings, comms_.optimizer());
    executor_ = std::make_unique<Executor>(RankState{config_, make_dims(config_), *device_, lanes_,
                                                     comms_, params_, *optimizer_, timeline_},
                                           program_);
  }

  void step() {
    REQUIRE(check_programs({program_}).ok());
    executor_->run({.batches = batches_,
                    .loss_scale = static_cast<float>(1.0 / tokens()),
                    .aux_scale = static_cast<float>(1.0 / config_.microbatches())});
  }

  [[nodiscard]] double cross_entropy() const { return executor_->loss_sum() / tokens(); }
  [[nodiscard]] double balance_loss() const { return executor_->aux_loss(); }
  [[nodiscard]] const std::vector<Param>& parameters() const { return params_.table().params; }

  std::vector<float> gradient(const Param& param) {
    const View grad = params_.grad(param.kind, param.layer);
    std::vector<float> values(static_cast<std::size_t>(grad.size()));
    Stream& stream = lanes_.stream(Lane::kDp);
    device_->copy(stream, values.data(), grad.data, grad.bytes());
    // hazard: the copy before the host reads it
    stream.sync();
    return values;
  }

 private:
  [[nodiscard]] double tokens() const {
    return static_cast<double>(config_.microbatches() * config_.tokens_per_microbatch());
  }

  void load_parameters(const SafetensorsReader& reference) {
    for (const Param& param : parameters()) {
      const auto values = read<float>(reference, "parameter/" + param.name);
      copy_in(*device_, lanes_.stream(Lane::kCompute), params_.value(param.kind, param.layer),
              values.data(), values.size() * sizeof(float));
    }
  }

  void load_batches(const SafetensorsReader& reference) {
    const std::int64_t per_batch = config_.tokens_per_microbatch();
    const std::int64_t all = config_.microbatches() * per_batch;
    auto load = [&](const char* name, Buffer& buffer) {
      const auto ids = read<std::int32_t>(reference, name);
      buffer = device_->alloc(ids.size() * sizeof(std::int32_t), name);
      const View view{buffer.data(), DType::kI32, all, 1};
      copy_in(*device_, lanes_.stream(Lane::kCompute), view, ids.data(), buffer.bytes());
      return view;
    };
    const View tokens = load("tokens", tokens_), labels = load("labels", labels_);
    for (int m = 0; m < config_.microbatches(); ++m)
      batches_.push_back(
          {tokens.slice(m * per_batch, per_batch), labels.slice(m * per_batch, per_batch)});
  }

  const RunConfig config_;
  std::unique_ptr<Device> device_;
  const RankGrid grid_;
  Buffer tokens_, labels_;
  std::vector<BatchView> batches_;
  Lanes lanes_;
  RankComms comms_;
  Params params_;
  std::unique_ptr<Optimizer> optimizer_;  // after the parameters have their values
  Timeline timeline_;
  const Program program_;
  std::unique_ptr<Executor> executor_;
};

// max|a - b| / max|b|. A gradient that is zero but for rounding has no scale of its own; none of
// the reference's is.
double relative_error(const std::vector<float>& mine, const std::vector<float>& reference) {
  REQUIRE(mine.size() == reference.size());
  double worst = 0.0, scale = 0.0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double difference = std::abs(static_cast<double>(mine[i]) - reference[i]);
    if (!(difference <= worst)) worst = difference;  // keeps a NaN
    scale = std::max(scale, std::abs(static_cast<double>(reference[i])));
  }
  REQUIRE(scale > 1e-6);
  return worst / scale;
}

void require_agreement(const Case& expected, const RunConfig& config) {
  const auto reference = SafetensorsReader::open(folder() + expected.name + ".safetensors");
  run_as_threads(1, [&](World& world) {
    Rank rank(world, config, *reference);
    rank.step();
    CHECK(rank.cross_entropy() == Approx(expected.cross_entropy).epsilon(kTolerance));
    CHECK(rank.balance_loss() == Approx(expected.balance_loss).epsilon(kTolerance));
    for (const Param& param : rank.parameters()) {
      INFO(param.name);
      CHECK(relative_error(rank.gradient(param),
                           read<float>(*reference, "gradient/" + param.name)) <= kTolerance);
    }
  });
}

TEST_CASE("losses and gradients of the whole model agree with the float64 reference") {
  const std::vector<Case> cases = read_cases();
  REQUIRE(cases.size() >= 5);
  for (const Case& expected : cases) {
    DYNAMIC_SECTION(expected.name) {
      const std::string path = folder() + expected.name + ".json";
      const std::string overlap = GENERATE("true", "false");
      require_agreement(expected, resolve(load_config(path, {"overlap.enabled=" + overlap}), 1));
    }
  }
}

}  // namespace
}  // namespace tandem
