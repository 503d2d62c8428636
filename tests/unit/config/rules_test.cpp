#include <catch2/catch.hpp>

#include "tandem/base/error.h"
#include "tandem/config/load.h"

using namespace tandem;
using Catch::Contains;
using Overrides = std::vector<std::string>;

namespace {

RunConfig config_of(const Overrides& overrides) {
  return parse_config("{}", "t", overrides);
}

// The violations of a config, and whether resolve() agrees that there are any.
std::vector<std::string> found(const Overrides& overrides, int world) {
  const RunConfig config = config_of(overrides);
  const std::vector<std::string> all = violations(config, world);
  if (all.empty())
    CHECK_NOTHROW(resolve(config, world));
  else
    CHECK_THROWS_AS(resolve(config, world), Error);
  return all;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

struct Case {
  Overrides overrides;
  int world;
  const char* expected;  // the whole violation
};

}  // namespace

TEST_CASE("each rule fires alone, with key, value, rule and way out") {
  const Case cases[] = {
      {{"model.heads=6", "model.kv_heads=4"},
       1,
       "model.kv_heads = 4: does not divide model.heads = 6; give a divisor of 6"},
      {{"model.head_dim=33"},
       1,
       "model.head_dim = 33: rotary positions turn pairs of elements, so it must be even; give 32 "
       "or 34"},
      {{"model.topk=9"}, 1, "model.topk = 9: more than the 8 experts; give at most 8"},
      {{"model.topk=1"},
       1,
       "model.topk = 1: renormalising a single probability makes it 1, so the router would get no "
       "gradient; set model.norm_topk_prob=false, or model.topk to 2 or more"},
      {{"model.first_k_dense=5"},
       1,
       "model.first_k_dense = 5: more than the 4 layers; give at most 4"},
      {{"model.first_k_dense=4"},
       1,
       "model.experts = 8: first_k_dense, moe_every and moe_pattern leave no MoE layer to hold "
       "them; "
       "set model.experts=0 for a dense model, or make a layer MoE"},
      {{"model.moe_pattern=[1,0]"},
       1,
       "model.moe_pattern = [2 entries]: needs one entry for each of the 4 layers; give 4 entries, "
       "or none"},
      {{"model.experts=0", "model.moe_pattern=[0,1,0,0]"},
       1,
       "model.moe_pattern = [.. 1 ..]: names MoE layers, but model.experts is 0; set "
       "model.experts, or "
       "write 0 for every layer"},
      {{"model.heads=65536", "model.kv_heads=65536", "model.head_dim=65536"},
       1,
       "model.head_dim = 65536: makes the query, key and value projection 12884901888 long, beyond "
       "the "
       "2147483647 of a matrix; make it smaller"},
      {{"train.micro_batch=65536", "train.global_batch=65536", "train.seq_len=65536"},
       1,
       "train.micro_batch = 65536: makes the token dimension of a micro-batch 4294967296 long, "
       "beyond "
       "the 2147483647 of a matrix; make it smaller"},
      {{"train.micro_batch=32768", "train.global_batch=32768", "train.seq_len=32768"},
       1,
       "train.micro_batch = 32768: makes the routed rows of a micro-batch 2147483648 long, beyond "
       "the "
       "2147483647 of a matrix; make it smaller"},
      {{"parallel.ep=4", "train.micro_batch=32768", "train.global_batch=131072",
        "train.seq_len=16384"},
       4,
       "parallel.ep = 4: makes the rows one rank may receive 4294967296 long, beyond the "
       "2147483647 of a "
       "matrix; make it smaller"},
      {{"model.layers=10000", "model.experts=65536", "model.hidden=1048576",
        "model.moe_ffn=67108864"},
       1,
       "model.layers = 10000: the model has about 1.4e+23 parameters, more than 1e+17; make it "
       "smaller"},
      {{"parallel.pp=2"},
       3,
       "parallel.pp = 2: does not divide the 3 rank(s) of this run; start a multiple of 2 ranks, "
       "as in "
       "mpirun -np 2 or --ranks 2"},
      {{"parallel.pp=2", "parallel.dp=3", "train.global_batch=9"},
       3,
       "parallel.pp = 2: does not divide the 3 rank(s) of this run; start 6 ranks, as in mpirun "
       "-np 6 or --ranks 6"},
      {{"parallel.pp=4096", "parallel.vpp=2", "parallel.spread=spread", "train.global_batch=4096"},
       4096,
       "train.global_batch = 4096: makes 4096 micro-batches a step, and the programs of more than "
       "63 are too large to hold; parallel.vpp = 2 needs 4096 of them: lower parallel.pp, or set "
       "parallel.vpp=1 and give at most 127"},
      {{"parallel.pp=8", "parallel.vpp=1024", "parallel.spread=spread", "train.global_batch=64"},
       8,
       "train.global_batch = 64: makes 64 micro-batches a step, and the programs of more than 63 "
       "are too large to hold; give at most 56, or raise train.micro_batch or parallel.dp"},
      {{"parallel.dp=4"},
       2,
       "parallel.dp = 4: pp x dp = 1 x 4 is not the 2 rank(s) of this run; start 4 ranks, or set "
       "parallel.dp=2"},
      {{"parallel.vpp=2"},
       1,
       "parallel.vpp = 2: interleaving needs more than one pipeline stage; set parallel.vpp=1, or "
       "parallel.pp to 2 or more"},
      {{"model.layers=5", "parallel.pp=2"},
       2,
       "model.layers = 5: does not divide over pp x vpp = 2 virtual stages; set "
       "parallel.spread=spread, "
       "give parallel.partition, or take 6 layers"},
      {{"parallel.pp=2", "parallel.partition=[2,1,1]"},
       2,
       "parallel.partition = [3 entries]: needs pp x vpp = 2 entries, one per virtual stage; give "
       "2 "
       "entries, or none for an even split"},
      {{"parallel.pp=2", "parallel.partition=[2,1]"},
       2,
       "parallel.partition = [2 entries]: adds up to 3 layers, but model.layers is 4; make the two "
       "equal"},
      {{"parallel.pp=2", "parallel.partition=[10000,10000]"},
       2,
       "parallel.partition = [2 entries]: adds up to 20000 layers, but model.layers is 4; "
       "make the "
       "two equal"},
      {{"parallel.ep=2"},
       1,
       "parallel.ep = 2: does not divide the 1 data-parallel ranks it is drawn from; give a "
       "divisor of 1, "
       "or run on a multiple of pp x ep = 2 ranks"},
      {{"parallel.dp=2", "parallel.ep=4"},
       0,
       "parallel.ep = 4: does not divide the 2 data-parallel ranks it is drawn from; give a "
       "divisor of 2, "
       "or run on a multiple of pp x ep = 4 ranks"},
      {{"model.experts=0", "parallel.ep=2"},
       2,
       "parallel.ep = 2: there are no experts to share, as model.experts is 0; set parallel.ep=1"},
      {{"parallel.ep=3", "train.global_batch=9"},
       3,
       "parallel.ep = 3: does not divide model.experts = 8; give a divisor of 8"},
      {{"model.aux_loss=pooled", "parallel.pp=2"},
       2,
       "model.aux_loss = pooled: pools over all layers, but they lie on parallel.pp = 2 stages; "
       "set "
       "model.aux_loss=per_layer, or parallel.pp=1"},
      {{"train.micro_batch=3"},
       2,
       "train.global_batch = 8: not a multiple of train.micro_batch x parallel.dp = 3 x 2 (2 ranks "
       "over parallel.pp = 1); give "
       "12"},
      {{"parallel.pp=2", "parallel.vpp=2", "parallel.microbatch_group=1"},
       2,
       "parallel.microbatch_group = 1: below parallel.pp = 2, the interleaved pipeline would "
       "starve; give "
       "at least 2, or 0"},
      {{"parallel.pp=2", "parallel.vpp=2", "train.global_batch=1"},
       2,
       "parallel.microbatch_group = 2: more than the 1 micro-batches of a step; raise "
       "train.global_batch "
       "to 2 or more, or set parallel.vpp=1"},
      {{"parallel.pp=2", "parallel.vpp=2", "parallel.microbatch_group=3", "train.global_batch=7"},
       2,
       "parallel.microbatch_group = 3: leaves a last group of 1 of the 7 micro-batches, fewer than "
       "parallel.pp = 2; choose train.global_batch so that the last group is empty or has at least "
       "2"},
      {{"optimizer.loss_scale=100"},
       1,
       "optimizer.loss_scale = 100: not a power of two, so that scaling would round; give 64 or "
       "128"},
      {{"optimizer.initial_loss_scale=65535"},
       1,
       "optimizer.initial_loss_scale = 65535: not a power of two, so that scaling would round; "
       "give 32768 or 65536"},
      {{"optimizer.loss_scale=1e-38"},
       1,
       "optimizer.loss_scale = 1e-38: so low that the gradients of fp16 would vanish; give 2^-16 "
       "or "
       "more, or 0 for a dynamic scale"},
      {{"optimizer.loss_scale=5.9604644775390625e-08"},  // a power of two
       1,
       "optimizer.loss_scale = 5.960464477539063e-08: so low that the gradients of fp16 would "
       "vanish; give 2^-16 or more, or 0 for a dynamic scale"},
      {{"train.global_batch=1073741824"},
       1,
       "train.global_batch = 1073741824: makes 1073741824 micro-batches a step, and the programs "
       "of "
       "more than 104857 are too large to hold; give at most 104857, or raise train.micro_batch or "
       "parallel.dp"},
      {{"train.eval_batches=104858"},
       1,
       "train.eval_batches = 104858: the programs of so many micro-batches are too large to hold; "
       "give at most 104857"},
      {{"train.micro_batch=32768", "train.global_batch=32768", "train.eval_batches=65536"},
       1,
       "train.eval_batches = 65536: the programs of so many micro-batches are too large to hold; "
       "give at most 65535"},
      {{"optimizer.min_loss_scale=3"},
       1,
       "optimizer.min_loss_scale = 3: not a power of two, so that scaling would round; give 2 or "
       "4"},
      {{"optimizer.min_loss_scale=131072"},
       1,
       "optimizer.min_loss_scale = 131072: above optimizer.initial_loss_scale = 65536; give at "
       "most 65536"},
      {{"logging.profile_steps=2", "logging.profile_begin=100"},
       1,
       "logging.profile_begin = 100: the last step is 99, so no step would be profiled; give at "
       "most 99"},
      {{"optimizer.min_lr=1"},
       1,
       "optimizer.min_lr = 1: above optimizer.lr = 0.001; give at most 0.001"},
      {{"optimizer.schedule=wsd", "optimizer.decay_steps=91"},
       1,
       "optimizer.decay_steps = 91: with warmup_steps = 10 more than train.steps = 100; give at "
       "most 90"},
      {{"data.kind=text", "data.train=a", "model.vocab=255"},
       1,
       "model.vocab = 255: the tokens of data.kind = text are bytes; give at least 256"},
      {{"data.kind=text"},
       1,
       "data.train = []: data.kind = text needs files; name at least one file, or set "
       "data.kind=synthetic"},
      {{"data.kind=megatron"},
       1,
       "data.train = []: data.kind = megatron needs files; name at least one file, or set "
       "data.kind=synthetic"},
      {{"data.kind=text", "data.train=a", "data.valid_fraction=0", "train.eval_every=5"},
       1,
       "train.eval_every = 5: there is no held-out text, as data.valid is empty and "
       "data.valid_fraction "
       "is 0; give data.valid or data.valid_fraction, or set train.eval_every=0"},
      {{"data.kind=megatron", "data.train=a", "data.split=1,0,0", "train.eval_every=5"},
       1,
       "train.eval_every = 5: data.split holds no validation documents out and data.valid is "
       "empty; give "
       "data.valid or a second weight, or set train.eval_every=0"},
      {{"checkpoint.every=5"},
       1,
       "checkpoint.every = 5: there is no folder to save to; set checkpoint.dir, or "
       "checkpoint.every=0"},
      {{"logging.trace_steps=2"},
       1,
       "logging.trace_steps = 2: there is no file to write the trace to; set logging.trace, or "
       "logging.trace_steps=0"},
      {{"logging.trace=t"},
       1,
       "logging.trace = t: no step would be traced; set logging.trace_steps"},
      {{"logging.trace=t", "logging.trace_steps=1", "logging.trace_begin=100"},
       1,
       "logging.trace_begin = 100: the last step is 99, so no step would be traced; give at most "
       "99"},
  };
  for (const Case& c : cases) {
    INFO(c.expected);
    const std::vector<std::string> all = found(c.overrides, c.world);
    INFO(joined(all));
    REQUIRE(all.size() == 1);
    CHECK(all[0] == c.expected);
  }
}

TEST_CASE("a split that is not one to three weights is refused") {
  for (const char* split :
       {"", "1,", "1,2,3,4", "a,b,c", "1,,2", "0,1,1", "-1,1,1", "1,nan,1", "1,1e10", "1 2"}) {
    INFO(split);
    const auto all =
        found({"data.kind=megatron", "data.train=a", std::string("data.split=") + split}, 1);
    REQUIRE(all.size() == 1);
    CHECK_THAT(all[0], Contains("data.split = ") && Contains("write it like 969,30,1"));
  }
}

TEST_CASE("what is unusual but sound is accepted") {
  const std::pair<Overrides, int> sound[] = {
      {{}, 1},
      {{}, 8},
      {{"parallel.pp=2", "parallel.vpp=2", "train.global_batch=2"}, 2},  // M = pp
      {{"parallel.pp=2", "train.global_batch=1"}, 2},                    // M < pp, vpp = 1
      {{"parallel.pp=2", "parallel.vpp=2", "train.global_batch=5", "parallel.microbatch_group=3"},
       2},
      {{"parallel.pp=4", "parallel.partition=[4,0,0,0]"}, 4},  // empty chunks
      {{"parallel.pp=3", "parallel.spread=spread", "train.global_batch=3"}, 3},
      {{"overlap.enabled=false", "overlap.delay_wgrad=true"}, 1},
      {{"overlap.events=shared"}, 1},
      {{"model.experts=0"}, 1},  // overlap, no experts
      {{"parallel.ep=8"}, 8},    // one expert a rank
      {{"model.moe_pattern=[1,0,0,0]", "model.first_k_dense=4"}, 1},
      {{"model.topk=1", "model.norm_topk_prob=false"}, 1},
      {{"model.experts=1", "model.topk=1", "model.norm_topk_prob=false"}, 1},
      {{"model.aux_loss=pooled"}, 1},
      {{"model.aux_loss=pooled", "model.aux_loss_coef=0", "parallel.pp=2"}, 2},
      {{"optimizer.schedule=wsd", "optimizer.decay_steps=90"}, 1},
      {{"train.dtype=fp16", "optimizer.loss_scale=4096", "optimizer.min_loss_scale=0.5"}, 1},
      {{"data.kind=text", "data.train=a", "train.eval_every=5"}, 1},
      {{"data.kind=megatron", "data.train=a", "data.split=99.5,0.5,0", "train.eval_every=5"}, 1},
      {{"data.kind=megatron", "data.train=a", "data.split=9 , 1", "train.eval_every=5"}, 1},
      {{"data.kind=megatron", "data.train=a", "data.split=\" 1 \"", "train.eval_every=0"}, 1},
      {{"train.device=cpu", "train.alltoall_delay_us=100"}, 1},
      {{"train.device=cuda", "train.alltoall_delay_us=100", "train.compute_sms=124"}, 1},
      {{"logging.profile_steps=2", "logging.profile_begin=99"}, 1},
      {{"logging.profile_begin=1000"}, 1},  // no window is asked for
      {{"train.global_batch=104857", "train.eval_batches=104857"}, 1},
      {{"optimizer.loss_scale=0.0000152587890625"}, 1},
  };
  for (const auto& [overrides, world] : sound) {
    const std::vector<std::string> all = found(overrides, world);
    INFO(joined(all));
    CHECK(all.empty());
  }
}

TEST_CASE("all violations are listed at once") {
  const RunConfig config =
      config_of({"model.kv_heads=3", "model.topk=9", "optimizer.min_lr=1", "parallel.vpp=2"});
  CHECK(violations(config, 1).size() == 4);
  CHECK_THROWS_WITH(resolve(config, 1), Contains("4 problems") &&
                                            Contains("\n  - model.kv_heads = 3:") &&
                                            Contains("\n  - model.topk = 9:"));
}

TEST_CASE("broken rules name the file") {
  CHECK_THROWS_WITH(resolve(config_of({"model.topk=9"}), 1, config_origin("a/b.json")),
                    Contains("a/b.json: 1 problem\n  - model.topk = 9"));
  CHECK(config_origin("") == "command line");
}

TEST_CASE("keys that change nothing are named, others are not") {
  const auto idle = [](const Overrides& overrides, bool on_gpu) {
    return joined(idle_keys(config_of(overrides), on_gpu));
  };
  CHECK(idle({}, false).empty());
  CHECK(idle({}, true).empty());
  CHECK(idle({"train.comm=nccl"}, false) ==
        "train.comm = nccl: no effect, as the model runs on the CPU\n");
  CHECK(idle({"train.comm=nccl"}, true).empty());
  CHECK(idle({"train.cpu_threads=2"}, false).empty());
  CHECK_THAT(idle({"train.cpu_threads=2"}, true), Contains("train.cpu_threads = 2"));
  CHECK_THAT(idle({"train.comm=staged", "train.alltoall=window"}, true),
             Contains("train.alltoall = window") && Contains("train.comm is staged"));
  CHECK(idle({"optimizer.loss_scale=1024"}, false) ==
        "optimizer.loss_scale = 1024: no effect without train.dtype=fp16\n");
  CHECK(idle({"optimizer.loss_scale=1024", "train.dtype=fp16"}, false).empty());
  CHECK_THAT(
      idle({"optimizer.loss_scale=1024", "train.dtype=fp16", "optimizer.min_loss_scale=2"}, false),
      Contains("optimizer.min_loss_scale = 2"));
  CHECK_THAT(idle({"data.train=a"}, false), Contains("data.train = [\"a\"]: not read"));
  CHECK_THAT(idle({"model.experts=0", "train.alltoall_delay_us=5"}, false),
             Contains("train.alltoall_delay_us = 5"));
  CHECK_THAT(idle({"checkpoint.resume=false"}, false), Contains("checkpoint.resume = false"));
}

TEST_CASE("a config built in code is held to the ranges before anything is divided") {
  RunConfig config;
  config.parallel.pp = 0;
  config.model.kv_heads = 0;
  config.optimizer.lr = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::string> all = violations(config, 4);
  CHECK(all.size() == 3);
  CHECK_THAT(joined(all),
             Contains("parallel.pp = 0: outside the range; give a value in [1, 4096]"));
}

TEST_CASE("resolve fills in dp, the group and the size of the run") {
  const RunConfig four = resolve(config_of({"parallel.pp=2"}), 4);
  CHECK(four.parallel.dp == 2);
  CHECK(four.parallel.microbatch_group == 2);
  CHECK(four.world() == 4);
  CHECK(four.microbatches() == 4);
  CHECK(four.tokens_per_microbatch() == 128);
  CHECK(resolve(config_of({"parallel.pp=2", "parallel.ep=4"}), 0).world() == 8);
  CHECK(resolve(config_of({"parallel.dp=4", "parallel.ep=2"}), 0).parallel.dp == 4);
  CHECK(resolve(config_of({}), 0).world() == 1);
  CHECK(resolve(config_of({"parallel.pp=2", "parallel.vpp=2", "parallel.microbatch_group=3",
                           "train.global_batch=6"}),
                2)
            .parallel.microbatch_group == 3);
  CHECK_THROWS_AS(RunConfig{}.microbatches(), Error);
}

TEST_CASE("which layers are MoE") {
  const auto kinds = [](const Overrides& overrides) {
    const ModelConfig m = config_of(overrides).model;
    std::string text;
    for (int layer = 0; layer < m.layers; ++layer) text += m.is_moe(layer) ? 'M' : 'd';
    return text;
  };
  CHECK(kinds({}) == "MMMM");
  CHECK(kinds({"model.experts=0"}) == "dddd");
  CHECK(kinds({"model.first_k_dense=1"}) == "dMMM");
  CHECK(kinds({"model.moe_every=2"}) == "dMdM");
  CHECK(kinds({"model.layers=6", "model.first_k_dense=2", "model.moe_every=2"}) == "dddMdM");
  CHECK(kinds({"model.moe_pattern=[1,0,0,1]", "model.first_k_dense=4"}) == "MddM");
  CHECK_THROWS_AS(ModelConfig{}.is_moe(4), Error);
  CHECK_THROWS_AS(ModelConfig{}.is_moe(-1), Error);
}
