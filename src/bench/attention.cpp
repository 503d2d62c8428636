// The attention core, forward and backward.
#include "benches.h"
#include "tandem/model/slot.h"
#include "tensors.h"

namespace tandem::bench {

Measured bench_attention(Device& device, Stream& stream, const RunConfig& config, int repeats) {
  const ModelDims d = make_dims(config);
  Tensors tensors(device, stream);
  const ops::HeadShape shape{d.heads, d.kv_heads, d.head_dim, d.seq_len};
  const ops::AttentionFwd forward{.qkv = tensors.normal(d.dtype, d.tokens, d.qkv_width()),
                                  .out = tensors.normal(d.dtype, d.tokens, d.q_width()),
                                  .lse = tensors.normal(DType::kF32, d.tokens, d.heads),
                                  .shape = shape};
  const ops::AttentionBwd backward{.qkv = forward.qkv,
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .d_out = tensors.normal(d.dtype, d.tokens, d.q_width()),
                                   .d_qkv = tensors.normal(d.dtype, d.tokens, d.qkv_width()),
                                   .shape = shape};
  const std::string group = fmt::format("{} heads, {} kv, head_dim {}, {} x {} tokens", d.heads,
                                        d.kv_heads, d.head_dim, d.sequences, d.seq_len);
  tensors.fill_all();
  return measure(device, stream, d.dtype, repeats,
                 {candidate(group, "fwd", forward), candidate(group, "bwd", backward)});
}

}  // namespace tandem::bench
