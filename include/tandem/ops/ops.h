// Every op as a plain struct of views and scalars. Behaviours are overloads: cpu::run(op, workers),
// cuda::run(op, stream); launch(stream, op) in launch.h picks one.
//
// D is the storage dtype (fp32, bf16 or fp16; what is too large for it becomes infinity); arithmetic
// and accumulation are fp32. "f32" fields are always fp32. Reductions have a fixed order: same
// inputs, same bits. T tokens, H hidden, R routed rows, P = T * topk, I inner size, E experts. Empty
// tensors (0 rows) are legal everywhere.
#pragma once

#include <cstdint>
#include <span>

#include "tandem/base/dtype.h"

namespace tandem::ops {

// c[m, n] (+)= op(a) op(b); a [m, k] or, with trans_a, [k, m]; b [k, n] or, with trans_b, [n, k].
// a, b: D. c: D or f32. accumulate adds to c (c is f32 then).
struct Gemm {
  View a, b, c;
  bool trans_a = false, trans_b = false, accumulate = false;
};

// Per expert e with rows offsets[e] .. offsets[e+1] of x and y (offsets: i32 [experts + 1]):
//   y_e = x_e w_e^T (trans_w) or x_e w_e.   x [R, k], w [experts * rows_w, cols_w], y [R, n], all D.
// host_rows [experts]: offsets[e+1] - offsets[e] as the host knows it, to be given wherever the op may
// run on a GPU. It must live until a stream of a device has the op, in an OpList until that has run.
struct GroupedGemm {
  View x, w, y, offsets;
  std::span<const std::int64_t> host_rows = {};
  bool trans_w = true;
};

// Per expert e: d_w_e (+)= d_y_e^T x_e.   d_y [R, n] D, x [R, k] D, d_w [experts * n, k] f32.
// accumulate adds to d_w_e; otherwise what was there is lost, and experts without rows get zeros.
struct GroupedGemmWeight {
  View d_y, x, d_w, offsets;
  std::span<const std::int64_t> host_rows = {};
  bool accumulate = true;
};

// y = x * rstd * w with rstd = 1 / sqrt(mean(x^2) + eps). x, y [T, H] D; w [H] D; rstd [T] f32.
struct RmsNormFwd { View x, w, y, rstd; float eps; };
// y again from the saved rstd (backward-weight needs the normed input).
struct RmsNormApply { View x, w, rstd, y; };
// d_x = (add + ) gradient; d_w [H] f32 accumulates. add: null data or [T, H] D, may equal d_x.
struct RmsNormBwd { View d_y, x, w, rstd, add, d_x, d_w; };

// out[t] = table[ids[t]]; ids [T] i32. Ids outside the table throw Error(kBadInput).
struct EmbeddingFwd { View ids, table, out; };
struct EmbeddingBwd { View ids, d_out, d_table; };     // d_table f32 accumulates, in token order

struct HeadShape { std::int64_t heads, kv_heads, head_dim, seq_len; };   // T is a multiple of seq_len

// QK norm. per_head: RMS over each head's head_dim, w_q, w_k [head_dim], rstd [T, heads + kv_heads].
// full: over the whole q (k) width, w_q [q_width], w_k [kv_width], rstd [T, 2].
// qkv [T, q + 2 kv] D is read and its q and k parts are written; raw [T, q + kv] keeps the inputs.
struct QkNormFwd { View qkv, raw, w_q, w_k, rstd; HeadShape shape; bool full; float eps; };
// d_qkv's q and k parts are replaced by the gradients of raw; d_w_q, d_w_k f32 accumulate.
struct QkNormBwd { View d_qkv, raw, w_q, w_k, rstd, d_w_q, d_w_k; HeadShape shape; bool full; };

// Rotary embedding in place on the q and k parts of qkv; pairs are (j, j + head_dim / 2), angle
// position * theta^(-2j / head_dim), position = row % seq_len. inverse: backward (rotation back).
struct Rope { View qkv; HeadShape shape; double theta; bool inverse; };

// Causal grouped-query attention per sequence, scale head_dim^-0.5, softmax in fp32.
// qkv [T, q + 2 kv] D; out [T, q_width] D; lse [T, heads] f32 (natural log of the row's sum).
struct AttentionFwd { View qkv, out, lse; HeadShape shape; };
struct AttentionBwd { View qkv, out, lse, d_out, d_qkv; HeadShape shape; };   // d_qkv is written

// Router: softmax over all experts in fp32, then top-k (ties: lower expert), optional
// renormalisation of the chosen. logits [T, E] f32 in; probs [T, E] f32, chosen [T, topk] i32 in
// descending probability, weights [T, topk] f32, z [T] f32 = log-sum-exp of the logits. A row whose
// softmax is not finite has NaN in all of them and chooses the first topk experts.
struct RouterFwd { View logits, probs, chosen, weights, z; bool renormalise; };
// d_logits [T, E] f32 from d_weights [T, topk] f32 plus
//   aux:  dL/dprobs[t, e] += aux_scale * load[e]      (load [E] f32, null data: none)
//   z:    dL/dlogits[t, e] += z_scale * 2 z[t] probs[t, e]
struct RouterBwd {
  View d_weights, probs, chosen, weights, z, load, d_logits;
  float aux_scale, z_scale;
  bool renormalise;
};
// The two losses of one layer: out[0] = sum_e load[e] * prob_sum[e], out[1] = sum_t z[t]^2.
// prob_sum [E] f32 becomes (accumulate: grows by) the column sums of probs; load [E] f32, out [2]
// f32. Sums are taken in double.
struct RouterLoss { View probs, z, load, prob_sum, out; bool accumulate; };

// counts[e] = number of (t, j) with chosen = e; rows[t, j] = the row of the expert-major order that
// (t, j) gets: experts ascending, within one expert tokens ascending. All i32; load [E] f32 = counts.
struct PermutePlan { View chosen, counts, rows, load; };
struct PermuteRows { View x, rows, out; };             // out[rows[t, j]] = x[t]
struct PermuteWeights { View weights, rows, out; };    // out[rows[t, j]] = weights[t, j], f32
// out[t] = (add[t] +) sum_j in[rows[t, j]], j ascending. add: null data or [T, H] D.
struct UnpermuteSum { View in, rows, add, out; };
struct UnpermuteWeights { View in, rows, out; };       // out[t, j] = in[rows[t, j]], f32
// offsets[e] = sum over experts before e and all sources of counts [sources, experts]; i32.
struct ExpertOffsets { View counts, offsets; };

// act = silu(gate) * up * weight; gate_up [R, 2I] D: gate columns first. weights [R] f32 or null data (1).
struct SwiGluFwd { View gate_up, weights, act; };
// From d_act [R, I]: d_gate_up [R, 2I], act again (for the down projection's weight gradient) and
// d_weights [R] f32 (null data when weights is).
struct SwiGluBwd { View d_act, gate_up, weights, d_gate_up, act, d_weights; };

// Cross-entropy of logits [t, V] f32 against labels [t] i32: loss [t] f32. d_logits [t, V] D or f32
// = scale * (softmax - onehot); null data: none wanted; may be the logits themselves. Labels outside
// [0, V) throw Error(kBadInput).
struct CrossEntropy { View logits, labels, loss, d_logits; float scale; };

struct Add { View a, b, out; };             // D or f32, out may be a or b
struct AddTo { View from, to; };            // to (f32) += from (f32 or D)
// to [n, 2m] D = [hi, lo] of from [n, m] f32: hi = D(from), lo = D(from - hi). A product with both
// halves has the digits of two D, for one operand that D alone would round too much.
struct SplitHalves { View from, to; };
struct Cast { View from, to; };             // between storage dtypes, round to nearest even
struct Sum { View in, out; };               // out[0] f32 += sum of in (f32), accumulated in double
struct SquareSum { View in, out; };         // out[0] f32 = sum of in^2, accumulated in double

// Elements [begin, begin + size) of the Philox normal sequence of (seed, stream), times scale (see
// base/rng.h). out: D. On CUDA the last bit may differ from the CPU's.
struct InitNormal { View out; std::uint64_t seed, stream; std::int64_t begin; double scale; };

// For gradients that are grad_factor, a power of two, times too large:
// norm[0] = sqrt(square_sum[0]) / grad_factor; scale[0] = c / grad_factor with
// c = min(1, clip / (norm + 1e-6)), 1 where clip is 0, NaN where the norm is not finite. f32 [1].
struct ClipScale { View square_sum, norm, scale; float clip; float grad_factor = 1.0F; };

// AdamW (Loshchilov & Hutter) on f32 slices of equal length n; grad is multiplied by grad_scale[0]
// (f32, device) first, and nothing changes if that is not finite. param (D) receives the rounded
// master. Null grad_scale data: 1.
struct AdamW {
  View master, m, v, grad, param, grad_scale;
  float lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;                        // 1-based, for bias correction
};

}  // namespace tandem::ops
