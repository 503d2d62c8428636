// Keys that are set and change nothing: no error, as one file may serve several machines.
#include <algorithm>

#include "fields.h"
#include "tandem/config/load.h"
#include "values.h"

namespace tandem {
namespace {

struct Idle {
  bool when;
  std::vector<const char*> keys;
  const char* why;
};

std::vector<Idle> idle_groups(const RunConfig& c, bool on_gpu) {
  const bool fp16 = c.train.dtype == DType::kF16, fixed = c.optimizer.loss_scale > 0;
  return {
      {!on_gpu,
       {"train.comm", "train.alltoall", "train.nccl_max_ctas", "train.compute_sms",
        "logging.profile_steps"},
       "no effect, as the model runs on the CPU"},
      {on_gpu, {"train.cpu_threads"}, "no effect, as the model runs on a GPU"},
      {on_gpu && c.train.comm == CommChoice::kStaged,
       {"train.alltoall", "train.nccl_max_ctas"},
       "no effect, as train.comm is staged"},
      {!fp16,
       {"optimizer.loss_scale", "optimizer.initial_loss_scale", "optimizer.min_loss_scale",
        "optimizer.loss_scale_window", "optimizer.loss_scale_hysteresis"},
       "no effect without train.dtype=fp16"},
      {fp16 && fixed,
       {"optimizer.initial_loss_scale", "optimizer.min_loss_scale", "optimizer.loss_scale_window",
        "optimizer.loss_scale_hysteresis"},
       "no effect, as optimizer.loss_scale is fixed"},
      {c.data.kind == DataKind::kSynthetic,
       {"data.train", "data.valid"},
       "not read, as data.kind is synthetic"},
      {c.model.experts == 0, {"train.alltoall_delay_us"}, "no effect, as model.experts is 0"},
      {c.checkpoint.dir.empty(), {"checkpoint.resume"}, "no effect without checkpoint.dir"},
  };
}

std::string text_of(const config::Field& field) {
  JsonWriter writer;
  write_value(writer, field);
  const std::string text = writer.str();
  const bool is_name = std::holds_alternative<config::ChoiceRef>(field.ref);
  return is_name ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

std::vector<std::string> idle_keys(const RunConfig& config, bool on_gpu) {
  RunConfig set = config, defaults;
  const std::vector<config::Field> fields = config::fields(set), unset = config::fields(defaults);
  std::vector<std::string> lines;
  for (const Idle& group : idle_groups(config, on_gpu)) {
    if (!group.when) continue;
    for (const char* key : group.keys) {
      const auto at = std::find_if(fields.begin(), fields.end(),
                                   [&](const config::Field& f) { return f.name() == key; });
      const std::string text = text_of(*at);
      if (text != text_of(unset[static_cast<std::size_t>(at - fields.begin())]))
        lines.push_back(fmt::format("{} = {}: {}", key, text, group.why));
    }
  }
  return lines;
}

}  // namespace tandem
