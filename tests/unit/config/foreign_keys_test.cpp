// Names of other trainers lead to ours.
#include "foreign_keys.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/config/load.h"

using namespace tandem;
using Catch::Contains;

namespace {

std::set<std::string> our_keys(bool with_section) {
  std::set<std::string> keys;
  const Json json = parse_json(to_json(RunConfig{}), "t");
  for (const auto& [section, body] : json.as_object("t"))
    for (const auto& [key, value] : body.as_object(section))
      keys.insert(with_section ? section + "." + key : key);
  return keys;
}

std::string said_of(const std::string& override_text) {
  try {
    static_cast<void>(parse_config("{}", "t", {override_text}));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a name of another trainer is told with ours, or why there is none") {
  CHECK_THAT(said_of("train.eval_iters=2"),
             Contains("train.eval_iters: unknown key; here it is train.eval_batches ("));
  CHECK_THAT(said_of("train.eval_interval=2"), Contains("; here it is train.eval_every"));
  CHECK_THAT(said_of("model.rotary-base=1"), Contains("; here it is model.rope_theta"));
  CHECK_THAT(said_of("model.moe_layer_freq=2"),
             Contains("; here it is model.moe_pattern (a number N: 1 at layers 0, N, 2N"));
  CHECK_THAT(said_of("overlap.overlap_param_gather=true"),
             Contains("; not supported: parameters are gathered at the end of a step"));
  CHECK_THAT(said_of("train.recompute=true"), Contains("; not supported: nothing is recomputed"));
  CHECK_THAT(said_of("train.exit_signal_handler=true"), Contains("; always on here (SIGUSR1"));
  CHECK_THAT(said_of("model.moe_shared_expert_intermediate_size=1"),
             Contains("; not supported: there are no shared experts"));
}

TEST_CASE("names that people bring are known") {
  for (const char* name : {"moe_router_dtype",
                           "multi_latent_attention",
                           "mtp_num_layers",
                           "lr_warmup_fraction",
                           "transformer_impl",
                           "attention_backend",
                           "num_workers",
                           "log_throughput",
                           "manual_gc",
                           "fp8",
                           "n_group",
                           "output_router_logits",
                           "warmup_ratio",
                           "scoring_func",
                           "q_lora_rank",
                           "routed_scaling_factor",
                           "num_nextn_predict_layers",
                           "moe_router_num_groups",
                           "async_save",
                           "dataloader_num_workers",
                           "report_to",
                           "eval_strategy",
                           "cross_entropy_loss_fusion"}) {
    INFO(name);
    CHECK_FALSE(config::foreign_hint(name).empty());
  }
}

TEST_CASE("every entry of the table of foreign names leads somewhere") {
  const std::set<std::string> keys = our_keys(true), names = our_keys(false);
  std::set<std::string_view> seen;
  for (const config::ForeignKey& known : config::foreign_keys()) {
    INFO(known.theirs);
    CHECK(seen.insert(known.theirs).second);
    CHECK(names.count(std::string(known.theirs)) == 0);  // "did you mean" knows those
    CHECK(known.theirs.find('-') == std::string_view::npos);
    if (known.ours.empty())
      CHECK_FALSE(known.note.empty());
    else if (known.ours != "always")
      CHECK(keys.count(std::string(known.ours)) == 1);
  }
}

TEST_CASE("the names of README's table of Megatron's arguments are known") {
  const std::set<std::string> names = our_keys(false);
  std::ifstream readme(std::string(TANDEM_SOURCE_DIR) + "/README.md");
  const std::regex argument("`--([a-z0-9-]+)`");
  int found = 0;
  for (std::string line; std::getline(readme, line);) {
    if (line.rfind("| `--", 0) != 0) continue;
    const std::string theirs = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator at(theirs.begin(), theirs.end(), argument), end; at != end; ++at) {
      std::string name = (*at)[1];
      std::replace(name.begin(), name.end(), '-', '_');
      INFO(name);
      CHECK((names.count(name) == 1 || !config::foreign_hint(name).empty()));
      ++found;
    }
  }
  CHECK(found > 40);
}
