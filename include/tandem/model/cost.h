// Closed-form FLOPs and bytes.
#pragma once

#include <cstdint>

#include "tandem/config/config.h"
#include "tandem/model/node.h"
#include "tandem/model/slot.h"

namespace tandem {

// Model FLOPs of one token, forward and backward, as Megatron counts them (facts: 6 x active matmul
// parameters without router and embedding look-up, LM head included, causal attention at half).
double flops_per_token(const RunConfig& config);

// FLOPs of the matrix products of one node for one micro-batch; `received` rows for expert nodes;
// 0 for nodes without any. Over a model's nodes with received = routed() they sum to tokens *
// flops_per_token(), plus the router's products (in attention where `moe`), which that leaves out.
double node_flops(NodeKind kind, Phase phase, bool moe, const ModelDims& dims, double received);

// Bytes one rank sends to other ranks in an expert all-to-all of `rows` routed rows (balanced). The
// hidden states only: dispatch adds 4 bytes of weight per row, combine does not.
double alltoall_bytes(const ModelDims& dims, double rows);

}  // namespace tandem
