// Presets and small layouts that the tests of this folder share.
#pragma once

#include <string>

#include "tandem/config/config.h"
#include "tandem/config/load.h"

namespace tandem::test {

inline ModelConfig preset(const std::string& name) {
  return parse_config("{}", "test", {"model.preset=" + name}).model;
}

// Sizes that are all different, so that a swapped pair of dimensions shows.
inline RunConfig small_run(int pp, int vpp, int dp, int ep) {
  RunConfig c;
  c.model.layers = 8, c.model.hidden = 24, c.model.heads = 6, c.model.kv_heads = 2;
  c.model.head_dim = 10, c.model.experts = 4, c.model.topk = 3, c.model.moe_ffn = 14;
  c.model.dense_ffn = 34, c.model.vocab = 50, c.model.first_k_dense = 1;
  c.parallel.pp = pp, c.parallel.vpp = vpp, c.parallel.dp = dp, c.parallel.ep = ep;
  c.parallel.microbatch_group = pp;
  c.train.micro_batch = 2, c.train.seq_len = 11;
  return c;
}

}  // namespace tandem::test
