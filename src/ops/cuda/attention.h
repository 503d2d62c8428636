// The two implementations of causal attention on CUDA. Private.
#pragma once

#include "tandem/device/cuda_stream.h"
#include "tandem/ops/ops.h"

namespace tandem::cuda {

// Own kernels: any shape with head_dim <= 256, any dtype, deterministic, not fast.
void plain_attention(const ops::AttentionFwd& op, CudaStream& stream);
void plain_attention(const ops::AttentionBwd& op, CudaStream& stream);

// cuDNN's engines for bf16 and fp16. False where cuDNN is missing or refuses the shape; nothing was
// enqueued then. Probabilities and the gradients of scores are rounded to the storage dtype before
// they are multiplied, and so are the gradients of k and v of one query head before heads that
// share them are summed. On a stream that is not deterministic the backward pass adds d_q with
// atomics, so that its last bits vary from run to run; on one that is, it keeps the scores'
// gradients instead, which takes up to about 1 GiB more workspace.
bool cudnn_attention(const ops::AttentionFwd& op, CudaStream& stream);
bool cudnn_attention(const ops::AttentionBwd& op, CudaStream& stream);

}  // namespace tandem::cuda
