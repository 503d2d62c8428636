// The published models and small layouts that the tests of this folder share.
#pragma once

#include "tandem/config/config.h"

namespace tandem::test {

inline ModelConfig qwen3_30b() {
  ModelConfig m;
  m.layers = 48, m.hidden = 2048, m.heads = 32, m.kv_heads = 4, m.head_dim = 128;
  m.experts = 128, m.topk = 8, m.moe_ffn = 768, m.dense_ffn = 6144, m.vocab = 151936;
  m.qk_norm = QkNorm::kPerHead;
  return m;
}

inline ModelConfig qwen3_235b() {
  ModelConfig m = qwen3_30b();
  m.layers = 94, m.hidden = 4096, m.heads = 64, m.moe_ffn = 1536, m.dense_ffn = 12288;
  return m;
}

inline ModelConfig mixtral_8x7b() {
  ModelConfig m;
  m.layers = 32, m.hidden = 4096, m.heads = 32, m.kv_heads = 8, m.head_dim = 128;
  m.experts = 8, m.topk = 2, m.moe_ffn = 14336, m.vocab = 32000;
  return m;
}

inline ModelConfig olmoe_1b_7b() {
  ModelConfig m;
  m.layers = 16, m.hidden = 2048, m.heads = 16, m.kv_heads = 16, m.head_dim = 128;
  m.experts = 64, m.topk = 8, m.moe_ffn = 1024, m.vocab = 50304;
  m.qk_norm = QkNorm::kFull;
  return m;
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
