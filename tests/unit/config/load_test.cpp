#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/config/load.h"
#include "tandem/config/reference.h"

using namespace tandem;
using Catch::Contains;
using Overrides = std::vector<std::string>;

namespace {

const std::string kSource = TANDEM_SOURCE_DIR;
const std::string kReferenceBegin = "<!-- reference: begin -->\n";
const std::string kReferenceEnd = "<!-- reference: end -->\n";

std::string failure(const std::string& json, const Overrides& overrides = {}) {
  try {
    static_cast<void>(parse_config(json, "a.json", overrides));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "accepted";
}

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("nothing said gives the defaults") {
  CHECK(parse_config("{}", "a.json", {}) == RunConfig{});
  CHECK(load_config("", {}) == RunConfig{});
}

TEST_CASE("a file sets what it names, an override wins over it, the last one over all") {
  const char* text = R"({"train": {"steps": 7, "dtype": "bf16"}, "data": {"train": ["a", "b"]},
                         "model": {"moe_pattern": [1, 0], "rope_theta": 5e5, "tied_embeddings": true}})";
  const RunConfig c = parse_config(
      text, "a.json",
      {"train.steps=50", "parallel.partition=[2,1,1]", "train.seed=18446744073709551615",
       "optimizer.schedule=wsd", "checkpoint.dir=runs/a=b", "logging.trace=\"x y\"",
       "overlap.enabled=false", "optimizer.lr=1e-2", "train.steps=60", "data.valid=v.txt"});
  CHECK(c.train.steps == 60);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK(c.data.train == std::vector<std::string>{"a", "b"});
  CHECK(c.data.valid == std::vector<std::string>{"v.txt"});
  CHECK(c.model.moe_pattern == std::vector<int>{1, 0});
  CHECK(c.model.rope_theta == 5e5);
  CHECK(c.model.tied_embeddings);
  CHECK(c.parallel.partition == std::vector<int>{2, 1, 1});
  CHECK(c.train.seed == 18446744073709551615U);
  CHECK(c.optimizer.schedule == LrSchedule::kWsd);
  CHECK(c.optimizer.lr == 0.01);
  CHECK(c.checkpoint.dir == "runs/a=b");
  CHECK(c.logging.trace == "x y");
  CHECK_FALSE(c.overlap.enabled);
}

TEST_CASE("to_json is complete and reads back equal") {
  RunConfig c =
      parse_config("{}", "t",
                   {"model.preset=olmoe-1b-7b", "model.layers=3", "model.moe_pattern=[1,0,1]",
                    "model.norm_eps=1e-7", "model.aux_loss=pooled", "parallel.ep=4",
                    "parallel.spread=spread", "overlap.events=shared", "train.device=cuda",
                    "train.dtype=fp16", "train.seed=9223372036854775809", "data.kind=megatron",
                    "data.train=[\"a\\\\\\\"b\\\"\",\"c\"]", "optimizer.eps=1.0000000000000002e-8",
                    "logging.format=megatron", "checkpoint.resume=false"});
  CHECK(parse_config(to_json(c), "t", {}) == c);
  CHECK(parse_config(to_json(RunConfig{}), "t", {}) == RunConfig{});
}

TEST_CASE("every name means its own value, both ways") {
  const auto means = [](const char* override_text, auto field, auto expected) {
    INFO(override_text);
    const RunConfig c = parse_config("{}", "t", {override_text});
    CHECK(field(c) == expected);
    const std::string text(override_text);
    const std::size_t dot = text.find('.'), equals = text.find('=');
    CHECK_THAT(to_json(c),
               Contains(fmt::format("\"{}\": \"{}\"", text.substr(dot + 1, equals - dot - 1),
                                    text.substr(equals + 1))));
  };
  const auto qk = [](const RunConfig& c) { return c.model.qk_norm; };
  means("model.qk_norm=none", qk, QkNorm::kNone);
  means("model.qk_norm=per_head", qk, QkNorm::kPerHead);
  means("model.qk_norm=full", qk, QkNorm::kFull);
  const auto aux = [](const RunConfig& c) { return c.model.aux_loss; };
  means("model.aux_loss=per_layer", aux, AuxLossKind::kPerLayer);
  means("model.aux_loss=pooled", aux, AuxLossKind::kPooled);
  const auto spread = [](const RunConfig& c) { return c.parallel.spread; };
  means("parallel.spread=exact", spread, LayerSpread::kExact);
  means("parallel.spread=spread", spread, LayerSpread::kSpread);
  const auto events = [](const RunConfig& c) { return c.overlap.events; };
  means("overlap.events=per_direction", events, EventMode::kPerDirection);
  means("overlap.events=shared", events, EventMode::kShared);
  const auto device = [](const RunConfig& c) { return c.train.device; };
  means("train.device=auto", device, DeviceChoice::kAuto);
  means("train.device=cpu", device, DeviceChoice::kCpu);
  means("train.device=cuda", device, DeviceChoice::kCuda);
  const auto dtype = [](const RunConfig& c) { return c.train.dtype; };
  means("train.dtype=fp32", dtype, DType::kF32);
  means("train.dtype=bf16", dtype, DType::kBF16);
  means("train.dtype=fp16", dtype, DType::kF16);
  const auto kind = [](const RunConfig& c) { return c.data.kind; };
  means("data.kind=text", kind, DataKind::kText);
  means("data.kind=megatron", kind, DataKind::kMegatron);
  means("data.kind=synthetic", kind, DataKind::kSynthetic);
  const auto schedule = [](const RunConfig& c) { return c.optimizer.schedule; };
  means("optimizer.schedule=constant", schedule, LrSchedule::kConstant);
  means("optimizer.schedule=cosine", schedule, LrSchedule::kCosine);
  means("optimizer.schedule=wsd", schedule, LrSchedule::kWsd);
  const auto format = [](const RunConfig& c) { return c.logging.format; };
  means("logging.format=text", format, LogFormat::kText);
  means("logging.format=json", format, LogFormat::kJson);
  means("logging.format=megatron", format, LogFormat::kMegatron);
}

TEST_CASE("a preset replaces defaults and yields to explicit keys") {
  const RunConfig file = parse_config(
      R"({"model": {"layers": 2, "preset": "mixtral-8x7b", "vocab": 100}})", "t", {"model.topk=3"});
  CHECK(file.model.layers == 2);
  CHECK(file.model.vocab == 100);
  CHECK(file.model.topk == 3);
  CHECK(file.model.hidden == 4096);
  CHECK(file.model.moe_ffn == 14336);
  CHECK(file.model.preset == "mixtral-8x7b");
  // The default of layers is 4; saying 4 is not the same as saying nothing.
  CHECK(parse_config("{}", "t", {"model.layers=4", "model.preset=mixtral-8x7b"}).model.layers == 4);
  // An override names another preset; and none.
  const char* qwen = R"({"model": {"preset": "qwen3-30b-a3b"}})";
  CHECK(parse_config(qwen, "t", {"model.preset=olmoe-1b-7b"}).model.experts == 64);
  CHECK(parse_config(qwen, "t", {"model.preset="}).model == ModelConfig{});
}

TEST_CASE("a preset of the command line that yields to the file says which of its values do") {
  const auto warned = [](const char* json, const Overrides& overrides) {
    std::vector<std::string> lines;
    static_cast<void>(parse_config(json, "a.json", overrides, &lines));
    return lines;
  };
  const char* file = R"({"model": {"layers": 2, "hidden": 64, "experts": 8, "topk": 4}})";
  CHECK(warned(file, {"model.preset=mixtral-8x7b", "model.topk=4"}) ==
        std::vector<std::string>{
            "model.preset=mixtral-8x7b: 2 of its values are overridden by a.json: layers, hidden; "
            "leave them out of the file to have the preset's"});
  CHECK(warned(R"({"model": {"layers": 2}})", {"model.preset=mixtral-8x7b"}) ==
        std::vector<std::string>{
            "model.preset=mixtral-8x7b: 1 of its values is overridden by a.json: layers; leave it "
            "out of the file to have the preset's"});
  // Who writes both into one place means both.
  CHECK(warned(R"({"model": {"preset": "mixtral-8x7b", "layers": 2}})", {}).empty());
  CHECK(warned("{}", {"model.preset=mixtral-8x7b", "model.layers=2"}).empty());
  CHECK(warned(R"({"model": {"layers": 32}})", {"model.preset=mixtral-8x7b"}).empty());
  // No preset has no values.
  CHECK(warned(file, {"model.preset="}).empty());
}

TEST_CASE("a key without its section leads to it") {
  CHECK_THAT(failure("{}", {"steps=50"}), Contains("not of the form section.key=value; did you "
                                                   "mean train.steps?"));
  CHECK_THAT(failure("{}", {"num-layers=4"}), Contains("; here it is model.layers"));
  CHECK_THAT(failure("{}", {"globalbatch=4"}), Contains("; did you mean train.global_batch?"));
  CHECK_THAT(failure(R"({"steps": 50})"), Contains("steps: unknown section; did you mean "
                                                   "train.steps?"));
  CHECK_THAT(failure(R"({"hidden_size": 8})"), Contains("; here it is model.hidden"));
  CHECK(key_hint("zzzzzzzz").empty());
  CHECK(key_hint("train.step") == "did you mean train.steps?");
  CHECK(key_hint("model.steps") == "did you mean train.steps?");
  CHECK(key_hint("optim.weight-decay") == "did you mean optimizer.weight_decay?");
  CHECK_THAT(key_hint("model.num-layers"), Contains("here it is model.layers"));
  CHECK(key_hint("loggin.every") == "did you mean logging.every?");
  CHECK(key_hint("zzzz.zzzz").empty());
  CHECK(known_key("train.micro-batch") == "train.micro_batch");
  CHECK(known_key("steps").empty());
}

TEST_CASE("presets are the published models") {
  const auto preset = [](const char* name) {
    return parse_config("{}", "t", {std::string("model.preset=") + name}).model;
  };
  const auto shape = [](const ModelConfig& m) {
    return std::vector<int>{m.layers,  m.hidden, m.heads,   m.kv_heads, m.head_dim,
                            m.experts, m.topk,   m.moe_ffn, m.vocab};
  };
  const ModelConfig q30 = preset("qwen3-30b-a3b");
  CHECK(shape(q30) == std::vector<int>{48, 2048, 32, 4, 128, 128, 8, 768, 151936});
  CHECK((q30.qk_norm == QkNorm::kPerHead && q30.norm_topk_prob && !q30.tied_embeddings));
  CHECK((q30.rope_theta == 1e6 && q30.norm_eps == 1e-6 && q30.aux_loss_coef == 1e-3));
  const ModelConfig q235 = preset("qwen3-235b-a22b");
  CHECK(shape(q235) == std::vector<int>{94, 4096, 64, 4, 128, 128, 8, 1536, 151936});
  CHECK((q235.qk_norm == QkNorm::kPerHead && q235.norm_topk_prob && q235.rope_theta == 1e6));
  const ModelConfig mixtral = preset("mixtral-8x7b");
  CHECK(shape(mixtral) == std::vector<int>{32, 4096, 32, 8, 128, 8, 2, 14336, 32000});
  CHECK((mixtral.qk_norm == QkNorm::kNone && mixtral.norm_topk_prob));
  CHECK((mixtral.rope_theta == 1e6 && mixtral.norm_eps == 1e-5));
  const ModelConfig olmoe = preset("olmoe-1b-7b");
  CHECK(shape(olmoe) == std::vector<int>{16, 2048, 16, 16, 128, 64, 8, 1024, 50304});
  CHECK((olmoe.qk_norm == QkNorm::kFull && !olmoe.norm_topk_prob));
  CHECK((olmoe.rope_theta == 1e4 && olmoe.norm_eps == 1e-5 && olmoe.aux_loss_coef == 1e-2));
}

TEST_CASE("whatever is wrong with a key is said, with what to write instead") {
  struct Case {
    const char* json;
    const char* expected;
  };
  const Case cases[] = {
      {R"({"train": {"stepz": 1}})", "train.stepz: unknown key; did you mean train.steps?"},
      {R"({"train": {"lr": 1}})", "train.lr: unknown key; did you mean optimizer.lr?"},
      {R"({"train": {"qqqqqqqqq": 1}})", "train.qqqqqqqqq: unknown key; docs/CONFIG.md lists all"},
      {R"({"parallel": {"tp": 2}})",
       "parallel.tp: unknown key; not supported: there is no tensor parallelism"},
      {R"({"model": {"num-layers": 2}})", "model.num-layers: unknown key; here it is model.layers"},
      {R"({"trian": {}})", "trian: unknown section; did you mean train?"},
      {R"({"train": 3})", "train: expected an object of keys, got the integer 3"},
      {"[]", "expected an object of sections, got an array"},
      {R"({"train": {"steps": 1, "steps": 2}})", "the key \"steps\" appears twice"},
      {R"({"train": {}, "train": {}})", "the key \"train\" appears twice"},
      {R"({"train": {"steps": "50"}})", "train.steps: expected an integer, got the string \"50\""},
      {R"({"train": {"steps": 1.5}})", "train.steps: expected an integer, got the number 1.5"},
      {R"({"train": {"steps": null}})", "train.steps: expected an integer, got null"},
      {R"({"train": {"steps": 1099511627776}})",
       "train.steps = 1099511627776: outside the range; give a value in [1, 1000000000]"},
      {R"({"train": {"steps": 0}})",
       "train.steps = 0: outside the range; give a value in [1, 1000000000]"},
      {R"({"train": {"seed": -1}})",
       "train.seed = -1: outside the range; give a value in [0, 2^64)"},
      {R"({"train": {"seed": 18446744073709551616}})",
       "train.seed: expected an integer, got 1.8446744073709552e+19, which 64 bits do not hold"},
      {R"({"overlap": {"enabled": 1}})", "overlap.enabled: expected true or false"},
      {R"({"optimizer": {"lr": 1e400}})", "number overflow"},
      {R"({"optimizer": {"lr": NaN}})", "line 1"},
      {R"({"optimizer": {"lr": -1}})",
       "optimizer.lr = -1: outside the range; give a value in [0, 1e+37]"},
      {R"({"optimizer": {"beta2": 1}})",
       "optimizer.beta2 = 1: outside the range; give a value in [0, 0.99999994]"},
      {R"({"optimizer": {"beta2": 0.9999999999}})",  // 1 in fp32
       "optimizer.beta2 = 0.9999999999: outside the range; give a value in [0, 0.99999994]"},
      {R"({"optimizer": {"beta1": 0.999999999999}})",
       "optimizer.beta1 = 0.999999999999: outside the range; give a value in [0, 0.99999994]"},
      {R"({"optimizer": {"eps": 1e-46}})",  // 0 in fp32
       "optimizer.eps = 1e-46: outside the range; give a value in [1e-37, 1e+37]"},
      {R"({"checkpoint": {"keep": 1}})",
       "checkpoint.keep = 1: outside the range; give a value in [2, 1000000000]"},
      {R"({"train": {"dtype": "b16"}})",
       "train.dtype = \"b16\": not one of \"fp32\", \"bf16\", \"fp16\"; did you mean \"bf16\"?"},
      {R"({"model": {"preset": "qwen3-30b"}})", "did you mean \"qwen3-30b-a3b\"?"},
      {R"({"model": {"moe_pattern": [1, 2]}})",
       "model.moe_pattern[1] = 2: outside the range; give a value in [0, 1]"},
      {R"({"model": {"moe_pattern": 1}})", "model.moe_pattern: expected an array"},
      {R"({"parallel": {"partition": [1, -1]}})",
       "parallel.partition[1] = -1: outside the range; give a value in [0, 10000]"},
      {R"({"data": {"train": ""}})", "data.train[0] = \"\": an empty name"},
      {R"({"parallel": {"partition": 2}})",
       "parallel.partition: expected an array, got the integer 2; write it in brackets: [2]"},
      {R"({"overlap": {"enabled": True}})", "; JSON writes true, false and null in small letters"},
      {R"({"optimizer": {"lr": NaN}})", "; JSON has no NaN and no Infinity: give a finite number"},
      {R"({"train": {"steps": 1, }})", "; leave out the comma before it"},
      {R"({"data": {"train": ["a",
                             ]}})",
       "line 2, column 30: "},
      {R"({"data": {"train": ["a",]}})", "; leave out the comma before it"},
      {R"({'train': {}})", "; JSON has double quotes"},
      {R"({"data": {"train": [1]}})", "data.train[0]: expected a string"},
      {R"({"model": {"layers": 4.0}})",
       "model.layers: expected an integer, got the number 4, written with a fraction or an "
       "exponent; "
       "write 4"},
      {R"({"train": {"steps": 18446744073709551615}})",
       "train.steps = 18446744073709551615: outside the range"},
      {R"({"data": {"valid": ["a", ""]}})", "data.valid[1] = \"\": an empty name; name a file"},
      {R"({"checkpoint": {"dir": "a\u0000b"}})",
       "checkpoint.dir = \"a\\u0000b\": character 1 is a control character"},
      {R"({"data": {"train": ["a\u001b[31m"]}})",
       "data.train[0] = \"a\\u001b[31m\": character 1 is a control character"},
      {R"({"model": {"norm_eps": 1e-320}})",
       "model.norm_eps = 1e-320: outside the range; give a value in [1e-37, 1e+37]"},
      {R"({"optimizer": {"loss_scale": 8.98e307}})", "give a value in [0, 2^126]"},
      {R"({"optimizer": {"initial_loss_scale": 4.9e-324}})", "give a value in [2^-16, 2^126]"},
      {R"({"train": {"cpu_threads": 20000}})", "give a value in [0, 1024]"},
  };
  for (const Case& c : cases) {
    INFO(c.json);
    CHECK_THAT(failure(c.json), Contains("a.json") && Contains(c.expected));
  }
}

TEST_CASE("a bad override is named as one") {
  CHECK_THAT(failure("{}", {"steps=3"}), Contains("command line: \"steps=3\": not of the form"));
  CHECK_THAT(failure("{}", {"=3"}), Contains("not of the form section.key=value, as in"));
  CHECK_THAT(failure("{}", {"train.steps"}),
             Contains("command line: \"train.steps\": not of the form"));
  CHECK_THAT(failure("{}", {"train.steps=abc"}),
             Contains("command line: train.steps = abc: not of"));
  CHECK_THAT(failure("{}", {"overlap.enabled=False"}),
             Contains("overlap.enabled = False: not of the type bool; write true or false"));
  CHECK_THAT(failure("{}", {"parallel.partition=2,1,1,0"}),
             Contains("not of the type list of integers; write it as [2,1]"));
  CHECK_THAT(failure("{}", {"train.steps="}), Contains("command line: train.steps = : not of"));
  CHECK_THAT(failure("{}", {"train.step=1"}), Contains("command line: train.step: unknown key; did "
                                                       "you mean train.steps?"));
  CHECK_THAT(failure("{}", {"parallel.partition=2"}), Contains("expected an array"));
}

TEST_CASE("an override of a string is a bare word or a JSON string, never other JSON") {
  const auto dir = [](const std::string& text) {
    return parse_config("{}", "t", {"checkpoint.dir=" + text}).checkpoint.dir;
  };
  CHECK(dir("runs/a") == "runs/a");
  CHECK(dir("\"123\"") == "123");
  CHECK(dir("{a") == "{a");  // no JSON
  CHECK(dir("nullable") == "nullable");
  for (const char* text : {"null", "[1]", "123", "true", "{}"})
    CHECK_THAT(
        failure("{}", {std::string("checkpoint.dir=") + text}),
        Contains(fmt::format("command line: checkpoint.dir = {}: expected a string, got", text)));
  CHECK_THAT(failure("{}", {"checkpoint.dir=\"a"}), Contains("checkpoint.dir = \\\"a: not of"));
  CHECK_THAT(failure("{}", {"train.dtype=null"}), Contains("train.dtype = \"null\": not one of"));
  CHECK_THAT(failure("{}", {R"(data.train={"a":1})"}),
             Contains("data.train: expected an array, got an object"));
  CHECK_THAT(failure("{}", {"data.train=null"}),
             Contains("data.train: expected an array, got null"));
  CHECK_THAT(failure("{}", {"data.train=[\"a\""}), Contains("not of the type list of strings"));
  for (const char* empty : {"data.train=", "data.train=[\"\"]", "data.train=\"\""})
    CHECK_THAT(failure("{}", {empty}), Contains("data.train[0] = \"\": an empty name"));
  const auto files = [](const Overrides& overrides) {
    return parse_config("{}", "t", overrides).data.train;
  };
  CHECK(files({"data.train=\"a b\""}) == std::vector<std::string>{"a b"});
  CHECK(files({"data.train=a", "data.train=[]"}).empty());
  CHECK(parse_config(R"({"data": {"train": "a b"}})", "t", {}).data.train ==
        std::vector<std::string>{"a b"});
}

TEST_CASE("text from outside is shortened in messages") {
  const std::string longer(100000, 'k');
  for (const std::string& said :
       {failure("{\"" + longer + "\": {}}"), failure("{\"train\": {\"" + longer + "\": 1}}"),
        failure("{\"train\": {\"dtype\": \"" + longer + "\"}}"),
        failure("{\"model\": {\"preset\": \"" + longer + "\"}}"),
        failure("{\"" + longer + "\": {}, \"" + longer + "\": {}}"), failure("{}", {longer}),
        failure("{}", {longer + ".a=1"}), failure("{}", {"train.steps=" + longer}),
        failure("{}", {"optimizer.lr=\"" + longer + "\""})}) {
    CHECK_THAT(said, Contains(std::string(50, 'k')) && Contains("k..."));
    CHECK(said.size() < 400);
  }
  CHECK_THAT(failure(R"({"\u001b[31m": {}})"), Contains("\\u001b[31m: unknown section"));
}

TEST_CASE("everything that is wrong is listed at once") {
  const std::string all = failure(R"({"train": {"stepz": 1, "seq_len": 0}, "x": {}})",
                                  {"optimizer.lr=fast", "overlap.events=both"});
  CHECK_THAT(all, Contains("a.json: 5 problems") && Contains("train.stepz") &&
                      Contains("train.seq_len") && Contains("x: unknown section") &&
                      Contains("optimizer.lr = fast") && Contains("overlap.events = \"both\""));
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += fmt::format("{}\"x{}\": {{}}", i == 0 ? "" : ", ", i);
  CHECK_THAT(failure(many + "}"), Contains("1000 problems") && Contains("x49:") &&
                                      !Contains("x50:") && Contains("and 950 more"));
}

TEST_CASE("a file that cannot be read says why") {
  CHECK_THROWS_WITH(load_config("/no/such.json", {}),
                    Contains("/no/such.json") && Contains("No such file"));
  CHECK_THROWS_WITH(load_config("/tmp", {}), Contains("a folder"));
  CHECK_THROWS_WITH(load_config("train.steps=5", {}),
                    Contains("train.steps=5: an override where the config file belongs"));
  CHECK_THROWS_WITH(load_config("/dev/zero", {}), Contains("bytes of JSON, more than"));
}

TEST_CASE("every file of configs/ is valid at its own size") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource + "/configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    const RunConfig config = resolve(load_config(entry.path(), {}), 0);
    CHECK(config.world() >= 1);
    ++files;
  }
  CHECK(files >= 6);
}

TEST_CASE("docs/CONFIG.md holds the reference of the code, word for word") {
  INFO("after changing a key, run: unit_config '[write-reference]'");
  const std::string text = read(kSource + "/docs/CONFIG.md");
  CHECK_THAT(text, Contains(kReferenceBegin + "\n" + config_reference() + "\n" + kReferenceEnd));
}

TEST_CASE("the reference gives every number a range with both ends") {
  std::istringstream lines(config_reference());
  int numbers = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto is = [&](const char* type) {
      return line.find(fmt::format("` | {} |", type)) != std::string::npos;
    };
    if (!is("integer") && !is("number") && !is("list of integers")) continue;
    ++numbers;
    INFO(line);
    CHECK_THAT(line, Catch::Matches(".*\\| in [\\[(][^ ]+, [^ ]+[\\])] \\|.*"));
  }
  CHECK(numbers > 50);
}

TEST_CASE("a key of the reference is a key of to_json, and the reverse") {
  std::vector<std::string> written, listed;
  const Json json = parse_json(to_json(RunConfig{}), "t");
  for (const auto& [section, body] : json.as_object("t"))
    for (const auto& [key, value] : body.as_object(section))
      written.push_back(fmt::format("{}.{}", section, key));
  std::istringstream lines(config_reference());
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("### ", 0) == 0) section = line.substr(4);
    if (line.rfind("| `", 0) == 0)
      listed.push_back(fmt::format("{}.{}", section, line.substr(3, line.find('`', 3) - 3)));
  }
  CHECK(listed == written);
}

// Not part of the suite: writes the reference into the page.
TEST_CASE("write the reference into docs/CONFIG.md", "[.][write-reference]") {
  const std::string path = kSource + "/docs/CONFIG.md";
  std::string text = read(path);
  const std::size_t begin = text.find(kReferenceBegin), end = text.find(kReferenceEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t first = begin + kReferenceBegin.size();
  text.replace(first, end - first, fmt::format("\n{}\n", config_reference()));
  std::ofstream(path) << text;
}
