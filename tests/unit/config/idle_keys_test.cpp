// Which keys a run warns of because they change nothing in it.
#include <filesystem>
#include <set>

#include "rules.h"
#include "tandem/base/json.h"

using namespace tandem;
using Catch::Contains;

namespace {

enum Where { kOnCpu, kOnGpu };

std::string idle(const Overrides& overrides, Where where) {
  return joined(idle_keys(resolve(config_of(overrides), 0), where == kOnGpu));
}

Overrides operator+(Overrides all, const Overrides& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string key_of(const std::string& override_text) {
  return override_text.substr(0, override_text.find('='));
}

// A key that matters in some runs alone: one run in which it does not, and one in which it does.
struct Conditional {
  const char* set;
  Overrides idle;
  Where idle_on;
  Overrides used;
  Where used_on;
};

const std::vector<Conditional>& conditional() {
  static const Overrides dense = {"model.experts=0"}, fp16 = {"train.dtype=fp16"},
                         fixed = {"train.dtype=fp16", "optimizer.loss_scale=1024"},
                         nccl = {"parallel.ep=2"}, staged = {"parallel.ep=2", "train.comm=staged"},
                         text = {"data.kind=text", "data.train=a"},
                         pair = {"data.kind=megatron", "data.train=a"}, valid = {"data.valid=b"},
                         pattern = {"model.moe_pattern=[0,1,1,1]"},
                         pipe = {"parallel.pp=2", "parallel.vpp=2"},
                         constant = {"optimizer.schedule=constant"};
  static const std::vector<Conditional> all = {
      {"model.dense_ffn=64", {}, kOnCpu, pattern, kOnCpu},
      {"model.dense_ffn=64", {"model.preset=olmoe-1b-7b"}, kOnCpu, dense, kOnCpu},
      {"model.topk=3", dense, kOnCpu, {}, kOnCpu},
      {"model.moe_ffn=64", dense, kOnCpu, {}, kOnCpu},
      {"model.first_k_dense=1", pattern, kOnCpu, {}, kOnCpu},
      {"model.moe_every=2", pattern, kOnCpu, {}, kOnCpu},
      {"model.moe_every=2", dense, kOnCpu, {}, kOnCpu},
      {"model.moe_pattern=[0,0,0,0]", dense, kOnCpu, pattern, kOnCpu},
      {"model.norm_topk_prob=false", dense, kOnCpu, {}, kOnCpu},
      {"model.aux_loss=pooled", {"model.aux_loss_coef=0"}, kOnCpu, {}, kOnCpu},
      {"model.aux_loss_coef=0.5", dense, kOnCpu, {}, kOnCpu},
      {"model.z_loss_coef=0.5", dense, kOnCpu, {}, kOnCpu},
      {"parallel.microbatch_group=4", {}, kOnCpu, pipe, kOnCpu},
      {"parallel.spread=spread", {}, kOnCpu, {"parallel.pp=3"}, kOnCpu},
      {"parallel.spread=spread", {"parallel.partition=[4]"}, kOnCpu, {"parallel.pp=3"}, kOnCpu},
      {"overlap.enabled=false", {"train.global_batch=1"}, kOnCpu, {}, kOnCpu},
      {"overlap.events=shared", {"overlap.enabled=false"}, kOnCpu, {}, kOnCpu},
      {"overlap.events=shared", {"train.global_batch=1"}, kOnCpu, {}, kOnCpu},
      {"train.loss_chunk_tokens=128", {}, kOnCpu, {"train.micro_batch=2"}, kOnCpu},
      {"train.loss_chunk_tokens=9999", {}, kOnCpu, {"train.seq_len=8192"}, kOnCpu},
      {"train.eval_batches=2", {}, kOnCpu, {"train.eval_every=5"}, kOnCpu},
      {"train.cpu_threads=2", {}, kOnGpu, {}, kOnCpu},
      {"train.comm=nccl", {}, kOnCpu, {}, kOnGpu},
      {"train.alltoall=window", nccl, kOnCpu, nccl, kOnGpu},
      {"train.alltoall=window", staged, kOnGpu, nccl, kOnGpu},
      {"train.alltoall=window", {}, kOnGpu, nccl, kOnGpu},
      {"train.nccl_max_ctas=4", staged, kOnGpu, nccl, kOnGpu},
      {"train.compute_sms=99", {"train.dtype=bf16"}, kOnCpu, {"train.dtype=bf16"}, kOnGpu},
      {"train.compute_sms=99", {}, kOnGpu, {"train.dtype=bf16"}, kOnGpu},
      {"train.deterministic=false", {}, kOnCpu, {}, kOnGpu},
      {"train.alltoall_delay_us=5", dense, kOnCpu, {}, kOnCpu},
      {"data.train=a", {}, kOnCpu, {"data.kind=text"}, kOnCpu},
      {"data.valid=b", {}, kOnCpu, text, kOnCpu},
      {"data.valid_fraction=0.5", {}, kOnCpu, text, kOnCpu},
      {"data.valid_fraction=0.5", text + valid, kOnCpu, text, kOnCpu},
      {"data.split=9,1", text, kOnCpu, pair, kOnCpu},
      {"data.split=9,1", pair + valid, kOnCpu, pair, kOnCpu},
      {"optimizer.min_lr=0", constant, kOnCpu, {}, kOnCpu},
      {"optimizer.min_lr=0", {"train.steps=10"}, kOnCpu, {"train.steps=11"}, kOnCpu},
      {"optimizer.schedule=wsd", {"optimizer.min_lr=0.001"}, kOnCpu, {}, kOnCpu},
      {"optimizer.decay_steps=9", constant, kOnCpu, {}, kOnCpu},
      {"optimizer.decay_embeddings=false", {"optimizer.weight_decay=0"}, kOnCpu, {}, kOnCpu},
      {"optimizer.loss_scale=1024", {}, kOnCpu, fp16, kOnCpu},
      {"optimizer.initial_loss_scale=1024", fixed, kOnCpu, fp16, kOnCpu},
      {"optimizer.min_loss_scale=2", fixed, kOnCpu, fp16, kOnCpu},
      {"optimizer.loss_scale_window=9", {}, kOnCpu, fp16, kOnCpu},
      {"optimizer.loss_scale_hysteresis=9", fixed, kOnCpu, fp16, kOnCpu},
      {"checkpoint.keep=9", {}, kOnCpu, {"checkpoint.dir=a"}, kOnCpu},
      {"checkpoint.resume=false", {}, kOnCpu, {"checkpoint.dir=a"}, kOnCpu},
      {"logging.trace_begin=9", {}, kOnCpu, {"logging.trace=a", "logging.trace_steps=1"}, kOnCpu},
      {"logging.profile_begin=9", {}, kOnGpu, {"logging.profile_steps=1"}, kOnGpu},
      {"logging.profile_steps=9", {}, kOnCpu, {}, kOnGpu},
  };
  return all;
}

// Keys that matter in every run; those of a rule between keys cannot be set in vain.
const std::set<std::string> kAlways = {
    "model.preset",        "model.layers",       "model.hidden",        "model.heads",
    "model.kv_heads",      "model.head_dim",     "model.experts",       "model.vocab",
    "model.rope_theta",    "model.norm_eps",     "model.qk_norm",       "model.tied_embeddings",
    "model.init_std",      "parallel.pp",        "parallel.vpp",        "parallel.dp",
    "parallel.ep",         "parallel.partition", "overlap.delay_wgrad", "train.device",
    "train.dtype",         "train.steps",        "train.micro_batch",   "train.global_batch",
    "train.seq_len",       "train.seed",         "train.eval_every",    "train.watchdog_s",
    "train.poison_memory", "data.kind",          "optimizer.lr",        "optimizer.warmup_steps",
    "optimizer.beta1",     "optimizer.beta2",    "optimizer.eps",       "optimizer.weight_decay",
    "optimizer.clip",      "checkpoint.dir",     "checkpoint.every",    "logging.format",
    "logging.every",       "logging.metrics",    "logging.tensorboard", "logging.trace",
    "logging.trace_steps"};

}  // namespace

TEST_CASE("a key that changes nothing is named where it does so and nowhere else") {
  for (const Conditional& c : conditional()) {
    INFO(c.set);
    CHECK_THAT(idle(Overrides{c.set} + c.idle, c.idle_on), Contains(key_of(c.set) + " = "));
    CHECK_THAT(idle(Overrides{c.set} + c.used, c.used_on), !Contains(key_of(c.set) + " = "));
  }
}

TEST_CASE("of every key it is known when it changes nothing") {
  std::set<std::string> known = kAlways, keys;
  for (const Conditional& c : conditional()) {
    CHECK(kAlways.count(key_of(c.set)) == 0);
    known.insert(key_of(c.set));
  }
  const Json json = parse_json(to_json(RunConfig{}), "t");
  for (const auto& [section, body] : json.as_object("t"))
    for (const auto& [key, value] : body.as_object(section)) keys.insert(section + "." + key);
  CHECK(known == keys);
}

TEST_CASE("a key at its default is not named, nor one that a preset sets or resolve() fills in") {
  for (const Where where : {kOnCpu, kOnGpu}) {
    CHECK(idle({}, where).empty());
    CHECK(idle({"model.preset=qwen3-30b-a3b"}, where).empty());
    CHECK(idle({"parallel.pp=2", "parallel.microbatch_group=2"}, where).empty());
    CHECK(idle({"logging.trace_begin=0", "data.split=\"969,30,1\""}, where).empty());
  }
}

TEST_CASE("no file of configs/ says anything in vain") {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TANDEM_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    const RunConfig config = resolve(load_config(entry.path(), {}), 0);
    CHECK(joined(idle_keys(config, config.train.device != DeviceChoice::kCpu)).empty());
    ++files;
  }
  CHECK(files >= 6);
}

TEST_CASE("the reason is told, one for each key") {
  CHECK(idle({"train.comm=nccl"}, kOnCpu) ==
        "train.comm = nccl: no effect, as the model runs on the CPU\n");
  CHECK(idle({"optimizer.loss_scale=1024"}, kOnCpu) ==
        "optimizer.loss_scale = 1024: no effect without train.dtype=fp16\n");
  CHECK(idle({"data.train=a"}, kOnCpu) ==
        "data.train = [\"a\"]: not read, as data.kind is synthetic\n");
  CHECK(idle({"data.kind=text", "data.train=a", "data.valid=b", "data.split=9,1"}, kOnCpu) ==
        "data.split = \"9,1\": not read without data.kind=megatron\n");
}
