// What is inside a slot: a list of tensors carved from one buffer, each 64-byte aligned.
// Rows are either fixed by the config (tokens) or learnt from the router (received rows).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/config/config.h"
#include "tandem/model/node.h"

namespace tandem {

// Sizes every node needs; from a resolved config. All counts are per rank and micro-batch.
struct ModelDims {
  std::int64_t tokens = 0;        // T = micro_batch * seq_len
  std::int64_t sequences = 0;     // micro_batch
  std::int64_t seq_len = 0;
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t dense_ffn = 0, experts = 0, local_experts = 0, topk = 0, moe_ffn = 0, vocab = 0;
  int ep = 1;
  DType dtype = DType::kF32;      // storage of activations and parameters

  [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  [[nodiscard]] std::int64_t routed() const { return tokens * topk; }   // rows this rank sends
};

ModelDims make_dims(const RunConfig& config);

// One tensor inside a slot.
struct SlotTensor {
  std::string_view name;
  DType dtype;
  std::int64_t rows, cols;
  std::int64_t offset = 0;        // bytes from the slot's start
};

struct SlotLayout {
  std::vector<SlotTensor> tensors;
  std::int64_t bytes = 0;         // whole slot, a multiple of 64
};

// Layout of a slot. `received` is the number of rows this rank's experts receive for this
// micro-batch and layer; only slots for which sized_by_counts() holds depend on it.
// Tensors, in order (T tokens, H hidden, R received, P = T * topk routed, I = moe_ffn, D = dtype):
//   x, h, d_x, d_h      {x [T, H] D}
//   attn_saved          {rstd [T] f32, qkv [T, qkv_width] D (after QK norm and RoPE),
//                        qkv_raw [T, q_width + kv_width] D (before; only with QK norm, else 0 rows),
//                        qk_rstd [T, heads + kv_heads] f32 (per_head) or [T, 2] (full), else 0 rows,
//                        out [T, q_width] D, lse [T, heads] f32}
//   router_saved        {rstd [T] f32, probs [T, experts] f32 (softmax over all), chosen [T, topk] i32,
//                        weights [T, topk] f32 (after optional renormalisation),
//                        rows [T, topk] i32 (row of permuted that holds this token's j-th copy),
//                        z [T] f32 (log-sum-exp of the logits), load [experts] f32 (counts)}
//   pooled_load         {load [experts] f32, prob_sum [experts] f32}: sums over the layers so far
//   permuted, d_permuted   {rows [P, H] D, weights [P] f32}
//   counts_send         {counts [experts] i32};  counts_recv {counts [ep, local_experts] i32,
//                        offsets [local_experts + 1] i32 (first received row of each expert)}
//   expert_in, d_expert_in {rows [R, H] D, weights [R] f32}
//   expert_saved        {gate_up [R, 2I] D}
//   expert_out, d_expert_out {rows [R, H] D};  combined, d_combined {rows [P, H] D}
//   expert_grad         {d_gate_up [R, 2I] D, act [R, I] D (silu(gate) * up * weight)}
//   mlp_saved           {rstd [T] f32, gate_up [T, 2 * dense_ffn] D}
//   mlp_grad            {d_gate_up [T, 2 * dense_ffn] D, act [T, dense_ffn] D}
//   head_saved          {rstd [T] f32, d_normed [T, H] D}
//   attn_grad           {d_qkv [T, qkv_width] D, d_h [T, H] D}
//   persistent slots    no tensors, 0 bytes (parameters live in nn::Params)
SlotLayout slot_layout(SlotKind kind, const ModelDims& dims, QkNorm qk_norm, std::int64_t received);

// True for the slots whose size is learnt from the router: expert_in, expert_saved, expert_out,
// d_expert_out, expert_grad, d_expert_in.
bool sized_by_counts(SlotKind kind);

}  // namespace tandem
