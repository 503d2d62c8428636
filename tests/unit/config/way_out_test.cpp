// Who does what a violation of the layout says has a config without errors.
#include <regex>

#include "rules.h"

using namespace tandem;
using Catch::Contains;

namespace {

const char* const kOfLayout[] = {"parallel.", "train.global_batch", "model.layers",
                                 "model.aux_loss"};

bool of_layout(const std::string& violation) {
  return std::any_of(std::begin(kOfLayout), std::end(kOfLayout),
                     [&](const char* key) { return violation.rfind(key, 0) == 0; });
}

std::string way_out(const std::string& violation) {
  return violation.substr(violation.rfind("; ") + 2);
}

// What is said behind "set": "parallel.dp=1", "parallel.ep=1".
Overrides settings(const std::string& way) {
  Overrides all;
  const std::regex setting("[a-z]+\\.[a-z_]+=[a-z0-9_\\[\\]]*[a-z0-9\\]]");
  for (std::sregex_iterator at(way.begin(), way.end(), setting), end; at != end; ++at)
    all.push_back(at->str());
  return all;
}

int ranks(const std::string& way) {
  std::smatch found;
  return std::regex_search(way, found, std::regex("start (\\d+) ranks")) ? std::stoi(found[1]) : 0;
}

// Follows every line, first the number of ranks and then the settings.
void check_ways_out(const Overrides& overrides, int world) {
  const std::vector<std::string> all = violations(config_of(overrides), world);
  if (all.empty()) return;
  INFO(joined(overrides) << "on " << world << " ranks:\n" << joined(all));
  Overrides mended = overrides;
  for (const std::string& violation : all) {
    REQUIRE(of_layout(violation));
    const std::string way = way_out(violation);
    const Overrides said = settings(way);
    REQUIRE_FALSE(said.empty());
    mended.insert(mended.end(), said.begin(), said.end());
    if (const int started = ranks(way); started != 0 && all.size() == 1) {
      INFO(started << " ranks");
      CHECK(joined(violations(config_of(overrides), started)).empty());
    }
  }
  INFO("mended:\n" << joined(mended));
  CHECK(joined(violations(config_of(mended), world)).empty());
}

// Follows every choice of every line, one at a time.
void check_each_choice(const Overrides& overrides, int world) {
  const std::vector<std::string> all = violations(config_of(overrides), world);
  INFO(joined(overrides) << "on " << world << " ranks:\n" << joined(all));
  const std::regex choice("set [a-z][^,]*");
  for (const std::string& violation : all) {
    const std::string way = way_out(violation);
    REQUIRE(std::regex_search(way, choice));
    for (std::sregex_iterator at(way.begin(), way.end(), choice), end; at != end; ++at) {
      Overrides mended = overrides;
      for (const std::string& setting : settings(at->str())) mended.push_back(setting);
      INFO("mended:\n" << joined(mended));
      CHECK(joined(violations(config_of(mended), world)).empty());
    }
  }
}

}  // namespace

TEST_CASE("settings that a violation of the layout names hold all rules together") {
  for (const int world : {0, 1, 2, 3, 4, 6, 8})
    for (const char* pp : {"1", "2", "3", "4"})
      for (const char* vpp : {"1", "2"})
        for (const char* dp : {"0", "1", "2", "3"})
          for (const char* ep : {"1", "2", "3", "4"})
            for (const char* batch : {"1", "6", "8"})
              for (const char* layers : {"4", "5"})
                check_ways_out(
                    {std::string("parallel.pp=") + pp, std::string("parallel.vpp=") + vpp,
                     std::string("parallel.dp=") + dp, std::string("parallel.ep=") + ep,
                     std::string("train.global_batch=") + batch,
                     std::string("model.layers=") + layers},
                    world);
}

TEST_CASE("so they do with a partition, a group, experts of any number and larger micro-batches") {
  for (const int world : {1, 2, 3, 4, 6})
    for (const Overrides& more :
         {Overrides{"parallel.partition=[1,1,1,1]"}, Overrides{"parallel.partition=[2,2]"},
          Overrides{"parallel.microbatch_group=3"}, Overrides{"parallel.microbatch_group=9"},
          Overrides{"parallel.microbatch_group=1"}, Overrides{"model.experts=0"},
          Overrides{"model.experts=6"}, Overrides{"model.experts=7"},
          Overrides{"train.micro_batch=3"}, Overrides{"parallel.spread=spread"}})
      for (const char* pp : {"1", "2"})
        for (const char* vpp : {"1", "2"})
          for (const char* dp : {"0", "2"})
            for (const char* ep : {"1", "2", "3"}) {
              Overrides all = more;
              for (const std::string& text :
                   {std::string("parallel.pp=") + pp, std::string("parallel.vpp=") + vpp,
                    std::string("parallel.dp=") + dp, std::string("parallel.ep=") + ep})
                all.push_back(text);
              check_ways_out(all, world);
            }
}

TEST_CASE("each choice beside the pooled balance loss holds all rules") {
  for (const int world : {0, 1, 2, 6, 8})
    for (const char* pp : {"2", "4"})
      for (const char* vpp : {"1", "2"})
        for (const char* dp : {"0", "2", "3", "6"})
          for (const char* ep : {"1", "3", "4"})
            for (const char* batch : {"6", "7", "8"})
              check_each_choice(
                  {"model.aux_loss=pooled", "model.layers=8", "model.experts=8",
                   std::string("parallel.pp=") + pp, std::string("parallel.vpp=") + vpp,
                   std::string("parallel.dp=") + dp, std::string("parallel.ep=") + ep,
                   std::string("train.global_batch=") + batch},
                  world);
}

TEST_CASE("files of configs/ get ways out on few ranks") {
  for (const char* name : {"smoke", "demo", "qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b"})
    for (const int world : {1, 2, 3, 5, 16}) {
      const std::string path = std::string(TANDEM_SOURCE_DIR) + "/configs/" + name + ".json";
      const std::vector<std::string> all = violations(load_config(path, {}), world);
      Overrides mended;
      for (const std::string& violation : all)
        for (const std::string& setting : settings(way_out(violation))) mended.push_back(setting);
      INFO(path << " on " << world << " ranks:\n" << joined(all));
      CHECK(joined(violations(load_config(path, mended), world)).empty());
    }
}

TEST_CASE("evaluations that are too long leave the ways out of a wrong layout as they are") {
  const std::string demo = std::string(TANDEM_SOURCE_DIR) + "/configs/demo.json";
  const std::vector<std::string> layout = violations(load_config(demo, {}), 3);
  REQUIRE_FALSE(layout.empty());
  std::vector<std::string> both = violations(load_config(demo, {"train.eval_batches=1000000"}), 3);
  INFO(joined(both));
  // Whether their own rule is told depends on whether the dp is known.
  std::erase_if(both, [](const std::string& violation) {
    return violation.rfind("train.eval_batches", 0) == 0;
  });
  CHECK(both == layout);
  CHECK_FALSE(settings(way_out(layout.front())).empty());
}

TEST_CASE("little is changed, and ranks are named only where they suffice") {
  const std::string smoke = std::string(TANDEM_SOURCE_DIR) + "/configs/smoke.json";
  CHECK(violations(load_config(smoke, {}), 2) ==
        std::vector<std::string>{
            "parallel.dp = 2: pp x dp = 2 x 2 is not the 2 ranks of this run; start 4 ranks "
            "(mpirun -np 4, or --ranks 4), or set parallel.dp=1 parallel.ep=1"});
  CHECK(violations(load_config(smoke, {}), 1) ==
        std::vector<std::string>{
            "parallel.pp = 2: does not divide the 1 rank of this run; start 4 ranks (mpirun -np "
            "4, or --ranks 4), or set parallel.pp=1 parallel.dp=1 parallel.ep=1"});
  // 4 ranks would not do either: 7 sequences are no whole number for each of 2.
  CHECK(violations(config_of({"parallel.dp=2", "train.global_batch=7"}), 1) ==
        std::vector<std::string>{
            "parallel.dp = 2: pp x dp = 1 x 2 is not the 1 rank of this run; set parallel.dp=1",
            "train.global_batch = 7: not a multiple of train.micro_batch x parallel.dp = 1 x 2; "
            "set parallel.dp=1"});
}
