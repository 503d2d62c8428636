#include "same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/config/load.h"
#include "tandem/optim/loss_scale.h"
#include "tandem/optim/lr_schedule.h"

namespace tandem {
namespace {

using Name = std::string_view;

// They say how the layers are dealt to dense and MoE; what counts is the outcome.
constexpr auto kLayerKinds = std::to_array<Name>({"first_k_dense", "moe_every", "moe_pattern"});
// They shape the gradient or the first values alone.
constexpr auto kObjective = std::to_array<Name>({"aux_loss", "aux_loss_coef", "z_loss_coef"});
constexpr auto kOnlyAtFirst = std::to_array<Name>({"preset", "init_std"});
constexpr auto kOnlyOfDense = std::to_array<Name>({"dense_ffn"});
constexpr auto kOnlyOfMoe = std::to_array<Name>({"topk", "moe_ffn", "norm_topk_prob"});
constexpr auto kSamples = std::to_array<Name>({"seed", "seq_len", "global_batch"});

// A key whose value changed, both as JSON.
struct Change {
  std::string key, before, now;
};
using Changes = std::vector<Change>;

Changes operator+(Changes all, const Changes& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// One line each.
std::string listed(const Changes& changes) {
  std::string lines;
  for (const Change& change : changes)
    lines += fmt::format("\n  {}: {} -> {}", change.key, change.before, change.now);
  return lines;
}

[[noreturn]] void refuse(ExitCode code, const std::string& what, const Changes& changes) {
  std::string back;
  for (const Change& change : changes) back += fmt::format(" {}={}", change.key, change.before);
  throw_error(code, "{}:{}\nset{}, or use another checkpoint.dir", what, listed(changes), back);
}

bool in(std::span<const Name> names, Name key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

bool has_layer(const ModelConfig& model, bool moe) {
  for (int layer = 0; layer < model.layers; ++layer)
    if (model.is_moe(layer) == moe) return true;
  return false;
}

class Comparison {
 public:
  Comparison(const std::string& path, const CheckpointInfo& info, const RunConfig& config)
      : what_(path + ", config"),
        old_(parse_json(info.config_json, what_)),
        new_(parse_json(to_json(config), "the config")) {}

  // The keys of a section that differ, of those `wanted` accepts.
  template <class Wanted>
  [[nodiscard]] Changes changes(const char* section, const Wanted& wanted) const {
    Changes found;
    const Json* before = old_.find(section);
    if (before == nullptr) return found;
    for (const auto& [key, value] : new_.at(section, section).as_object(section)) {
      const Json* old = before->find(key);
      if (old != nullptr && *old != value && wanted(key))
        found.push_back({fmt::format("{}.{}", section, key), old->dump(), value.dump()});
    }
    return found;
  }

  // train.steps of the checkpoint; `absent` where it does not have the key.
  [[nodiscard]] int old_steps(int absent) const {
    const Json* train = old_.find("train");
    const Json* steps = train == nullptr ? nullptr : train->find("steps");
    if (steps == nullptr) return absent;
    return static_cast<int>(steps->as_int(what_ + ": train.steps", 0, kMostInt));
  }

  // The checkpoint's optimizer as far as the learning rate goes; as in `now` where it has no key.
  [[nodiscard]] OptimizerConfig old_optimizer(const RunConfig& now) const {
    const Json* optimizer = old_.find("optimizer");
    std::vector<std::string> old;
    for (const char* key : {"lr", "min_lr", "warmup_steps", "schedule", "decay_steps"})
      if (const Json* value = optimizer == nullptr ? nullptr : optimizer->find(key))
        old.push_back(fmt::format("optimizer.{}={}", key, value->dump()));
    return parse_config(to_json(now), what_, old).optimizer;
  }

  // The checkpoint's model as far as layers and their kinds go.
  [[nodiscard]] ModelConfig old_layers() const {
    const Json& model = old_.at("model", what_);
    ModelConfig layers;
    const auto read = [&](const char* key, int& to, std::int64_t least) {
      if (const Json* value = model.find(key))
        to = static_cast<int>(value->as_int(what_ + ": model." + key, least, kMostInt));
    };
    read("layers", layers.layers, 1);
    read("experts", layers.experts, 0);
    read("first_k_dense", layers.first_k_dense, 0);
    read("moe_every", layers.moe_every, 1);
    if (const Json* pattern = model.find("moe_pattern"))
      for (const Json& kind : pattern->as_array(what_ + ": model.moe_pattern"))
        layers.moe_pattern.push_back(static_cast<int>(kind.as_int(what_, 0, 1)));
    return layers;
  }

 private:
  static constexpr std::int64_t kMostInt = 2147483647;
  const std::string what_;
  const Json old_, new_;
};

bool same_kinds(const ModelConfig& a, const ModelConfig& b) {
  if (a.layers != b.layers) return true;  // told by model.layers
  for (int layer = 0; layer < a.layers; ++layer)
    if (a.is_moe(layer) != b.is_moe(layer)) return false;
  return true;
}

// Another length of the run bends a schedule that ends with it: from the checkpoint's step on, the
// learning rate may jump though no key of the optimizer changed. Told beside keys that did, with
// the rate as it was.
Changes bent_schedule(const Comparison& compare, const CheckpointInfo& info,
                      const RunConfig& config) {
  const int now = config.train.steps, before = compare.old_steps(now);
  LossScaler scaler(config.optimizer, config.train.dtype);  // knows of skipped steps
  scaler.restore(info.loss_scale_json, "the checkpoint's loss_scale");
  const auto step = static_cast<int>(info.step - scaler.skipped());
  const double unbent = learning_rate(config.optimizer, step, before);
  const double is = learning_rate(config.optimizer, step, now);
  constexpr double kVisible = 0.01;
  if (std::abs(is - unbent) <= kVisible * std::max(is, unbent)) return {};
  const double was = learning_rate(compare.old_optimizer(config), step, before);
  std::string why = fmt::format("{:.2e} (train.steps {} -> {}", is, before, now);
  if (config.optimizer.schedule == LrSchedule::kCosine)
    why += fmt::format("; optimizer.decay_steps={} keeps the schedule",
                       std::max(1, before - config.optimizer.warmup_steps));
  return {{fmt::format("learning rate of step {}", info.step + 1), fmt::format("{:.2e}", was),
           why + ")"}};
}

}  // namespace

std::string require_same_run(const std::string& path, const CheckpointInfo& info,
                             const RunConfig& config) {
  const Comparison compare(path, info, config);
  const ModelConfig old = compare.old_layers();
  const bool kinds_agree = same_kinds(old, config.model);
  const auto used = [&](Name key) {
    if (in(kOnlyOfDense, key)) return has_layer(old, false) || has_layer(config.model, false);
    if (in(kOnlyOfMoe, key)) return has_layer(old, true) || has_layer(config.model, true);
    return true;
  };
  const Changes model = compare.changes("model", [&](Name key) {
    if (in(kLayerKinds, key)) return !kinds_agree;
    return !in(kObjective, key) && !in(kOnlyAtFirst, key) && used(key);
  });
  Changes samples = compare.changes("train", [](Name key) { return in(kSamples, key); });
  if (samples.empty() && info.consumed_samples != info.step * config.train.global_batch)
    samples.push_back({"train.global_batch",
                       std::to_string(info.consumed_samples / std::max<std::int64_t>(1, info.step)),
                       std::to_string(config.train.global_batch)});
  const std::string other_samples = "would continue with other samples";
  if (!model.empty())
    refuse(
        ExitCode::kBadInput,
        path + " was written for another model" + (samples.empty() ? "" : ", and " + other_samples),
        model + samples);
  if (!samples.empty()) refuse(ExitCode::kUsage, path + " " + other_samples, samples);

  const auto any = [](Name) { return true; };
  return listed(compare.changes("model", [](Name key) { return in(kObjective, key); }) +
                compare.changes("train", [](Name key) { return key == "dtype"; }) +
                compare.changes("data", any) + compare.changes("optimizer", any) +
                bent_schedule(compare, info, config));
}

}  // namespace tandem
