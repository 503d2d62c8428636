#include "rules.h"

using namespace tandem;
using Catch::Contains;

TEST_CASE("each rule fires alone, with key, value, rule and way out") {
  check_each_fires_alone({
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
      {{"model.layers=10000", "model.experts=65536", "model.hidden=1048576",
        "model.moe_ffn=67108864"},
       1,
       "model.layers = 10000: the model has about 1.4e+23 parameters, more than 1e+17; make it "
       "smaller"},
      {{"model.aux_loss=pooled", "parallel.pp=2"},
       2,
       "model.aux_loss = pooled: pools over all layers, but they lie on parallel.pp = 2 stages; "
       "set "
       "model.aux_loss=per_layer, or set parallel.pp=1"},
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
      {{"optimizer.min_loss_scale=3"},
       1,
       "optimizer.min_loss_scale = 3: not a power of two, so that scaling would round; give 2 or "
       "4"},
      {{"optimizer.min_loss_scale=131072"},
       1,
       "optimizer.min_loss_scale = 131072: above optimizer.initial_loss_scale = 65536; give at "
       "most 65536"},
      {{"optimizer.clip=1e-46"},
       1,
       "optimizer.clip = 1e-46: is 0 in fp32, which would be no clipping; give 1e-37 or more, or "
       "0 for no clipping"},
      {{"optimizer.lr=1e20", "optimizer.weight_decay=1e20"},
       1,
       "optimizer.weight_decay = 1e+20: times optimizer.lr = 1e+20 is beyond fp32; give at most "
       "1e+17"},
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
  });
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
