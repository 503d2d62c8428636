#include "presets.h"

#include <string_view>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/nearest.h"

namespace tandem::config {
namespace {

ModelConfig qwen3_30b_a3b() {
  ModelConfig m;
  m.layers = 48;
  m.hidden = 2048;
  m.heads = 32;
  m.kv_heads = 4;
  m.head_dim = 128;
  m.dense_ffn = 6144;
  m.experts = 128;
  m.topk = 8;
  m.moe_ffn = 768;
  m.vocab = 151936;
  m.rope_theta = 1e6;
  m.norm_eps = 1e-6;
  m.qk_norm = QkNorm::kPerHead;
  m.norm_topk_prob = true;
  m.aux_loss_coef = 1e-3;
  return m;
}

ModelConfig qwen3_235b_a22b() {
  ModelConfig m = qwen3_30b_a3b();
  m.layers = 94;
  m.hidden = 4096;
  m.heads = 64;
  m.dense_ffn = 12288;
  m.moe_ffn = 1536;
  return m;
}

ModelConfig mixtral_8x7b() {
  ModelConfig m;
  m.layers = 32;
  m.hidden = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.head_dim = 128;
  m.dense_ffn = 14336;
  m.experts = 8;
  m.topk = 2;
  m.moe_ffn = 14336;
  m.vocab = 32000;
  m.rope_theta = 1e6;
  m.norm_eps = 1e-5;
  m.qk_norm = QkNorm::kNone;
  m.norm_topk_prob = true;
  m.aux_loss_coef = 1e-3;
  return m;
}

ModelConfig olmoe_1b_7b() {
  ModelConfig m;
  m.layers = 16;
  m.hidden = 2048;
  m.heads = 16;
  m.kv_heads = 16;
  m.head_dim = 128;
  m.dense_ffn = 1024;
  m.experts = 64;
  m.topk = 8;
  m.moe_ffn = 1024;
  m.vocab = 50304;
  m.rope_theta = 1e4;
  m.norm_eps = 1e-5;
  m.qk_norm = QkNorm::kFull;
  m.norm_topk_prob = false;
  m.aux_loss_coef = 1e-2;
  return m;
}

struct Preset {
  std::string_view name;
  ModelConfig (*make)();
};

constexpr Preset kPresets[] = {{"qwen3-30b-a3b", qwen3_30b_a3b},
                               {"qwen3-235b-a22b", qwen3_235b_a22b},
                               {"mixtral-8x7b", mixtral_8x7b},
                               {"olmoe-1b-7b", olmoe_1b_7b}};

}  // namespace

void apply_preset(const std::string& name, ModelConfig& model) {
  std::vector<std::string_view> names;
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      model = preset.make();
      model.preset = preset.name;  // `name` may be the field just replaced
      return;
    }
    names.push_back(preset.name);
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", preset.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  throw_error(ExitCode::kUsage, "model.preset = \"{}\": not one of {}{}", excerpt(name), known,
              nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

}  // namespace tandem::config
