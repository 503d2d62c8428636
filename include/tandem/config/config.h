// RunConfig: everything a run is told, as plain structs. JSON keys equal the field names
// (section.key); defaults are the values below. docs/CONFIG.md lists every key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/dtype.h"

namespace tandem {

enum class QkNorm { kNone, kPerHead, kFull };           // "none" | "per_head" | "full"
enum class AuxLossKind { kPerLayer, kPooled };          // "per_layer" (Megatron) | "pooled" (HF)
enum class EventMode { kPerDirection, kShared };        // "per_direction" | "shared"
enum class LrSchedule { kConstant, kCosine, kWsd };     // "constant" | "cosine" | "wsd"
enum class DataKind { kText, kMegatron, kSynthetic };   // "text" | "megatron" | "synthetic"
enum class DeviceChoice { kAuto, kCpu, kCuda };         // "auto" | "cpu" | "cuda"
enum class AllToAllChoice { kAuto, kPlain, kWindow };
enum class CommChoice { kAuto, kNccl, kStaged };        // "auto" | "nccl" | "staged"
enum class LogFormat { kText, kJson, kMegatron };       // "text" | "json" | "megatron"
enum class LayerSpread { kExact, kSpread };             // "exact" | "spread"

struct ModelConfig {
  std::string preset;                // "" | qwen3-30b-a3b | qwen3-235b-a22b | mixtral-8x7b | olmoe-1b-7b
  int layers = 4;
  int hidden = 128;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 32;
  int dense_ffn = 512;               // inner size of dense layers
  int experts = 8;                   // per MoE layer; 0 = an all-dense model
  int topk = 2;
  int moe_ffn = 256;                 // inner size of one expert
  int first_k_dense = 0;             // layers 0 .. k-1 are dense
  int moe_every = 1;                 // of the rest, layer i is MoE iff (i + 1) % moe_every == 0
  std::vector<int> moe_pattern;      // explicit: 1 = MoE, 0 = dense; overrides the two above
  int vocab = 256;
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_topk_prob = true;        // renormalise the chosen probabilities
  bool tied_embeddings = false;
  AuxLossKind aux_loss = AuxLossKind::kPerLayer;
  double aux_loss_coef = 0.01;
  double z_loss_coef = 0.0;
  double init_std = 0.02;

  [[nodiscard]] bool is_moe(int layer) const;  // layer in [0, layers)

  bool operator==(const ModelConfig&) const = default;
};

struct ParallelConfig {
  int pp = 1;                        // pipeline stages
  int vpp = 1;                       // chunks per stage
  int dp = 0;                        // 0 = world / pp
  int ep = 1;                        // expert parallel, divides dp
  int microbatch_group = 0;          // N of interleaved 1F1B; 0 = pp
  std::vector<int> partition;        // layers per virtual stage (pp * vpp entries); empty = even
  LayerSpread spread = LayerSpread::kExact;  // "spread": layers need not divide pp * vpp

  bool operator==(const ParallelConfig&) const = default;
};

struct OverlapConfig {
  bool enabled = true;               // pair forward and backward of different micro-batches
  bool delay_wgrad = true;           // weight gradients as nodes of their own
  EventMode events = EventMode::kPerDirection;

  bool operator==(const OverlapConfig&) const = default;
};

struct TrainConfig {
  DeviceChoice device = DeviceChoice::kAuto;
  DType dtype = DType::kF32;         // storage of parameters and activations: fp32 | bf16 | fp16
  int steps = 100;
  int micro_batch = 1;               // sequences
  int global_batch = 8;              // sequences; = micro_batch * dp * micro-batches
  int seq_len = 128;
  std::uint64_t seed = 1234;
  int loss_chunk_tokens = 4096;      // tokens per chunk of the cross-entropy
  int eval_every = 0;                // steps; 0 = never
  int eval_batches = 8;              // micro-batches per data-parallel rank
  int cpu_threads = 0;               // per rank; 0 = cores / ranks on this host
  CommChoice comm = CommChoice::kAuto;  // what carries GPU memory between ranks
  AllToAllChoice alltoall = AllToAllChoice::kAuto;  // how NCCL carries expert all-to-alls
  int nccl_max_ctas = 0;             // thread blocks of one NCCL communicator; 0 = NCCL's choice
  int compute_sms = 0;               // multiprocessors persistent kernels may fill; 0 = all
  int watchdog_s = 300;              // a step may take this long
  double alltoall_delay_us = 0.0;    // modelled network time per expert all-to-all
  bool deterministic = true;
  bool poison_memory = false;        // fill freed slots with NaN

  bool operator==(const TrainConfig&) const = default;
};

struct DataConfig {
  DataKind kind = DataKind::kSynthetic;
  std::vector<std::string> train;    // text files, or .bin/.idx prefixes
  std::vector<std::string> valid;    // empty: the last valid_fraction of train
  double valid_fraction = 0.05;
  std::string split = "969,30,1";    // Megatron's split, for kind = megatron with valid empty

  bool operator==(const DataConfig&) const = default;
};

// Limits of optimizer.loss_scale and its like.
inline constexpr double kLeastLossScale = 0x1p-16, kMostLossScale = 0x1p126;

struct OptimizerConfig {
  double lr = 1e-3;
  double min_lr = 1e-4;
  int warmup_steps = 10;
  LrSchedule schedule = LrSchedule::kCosine;
  int decay_steps = 0;               // cosine: length, 0 = to the end; wsd: length of the final decay, 0 = a tenth
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;         // matrices only: norms and biases are never decayed
  bool decay_embeddings = true;
  double clip = 1.0;                 // global gradient norm; 0 = no clipping
  // Loss scaling, with train.dtype = fp16 only; scales are powers of two.
  double loss_scale = 0.0;           // fixed; 0 = dynamic, by the four below
  double initial_loss_scale = 65536.0;
  double min_loss_scale = 1.0;
  int loss_scale_window = 1000;      // good steps in a row until it doubles
  int loss_scale_hysteresis = 2;     // overflows until it halves

  bool operator==(const OptimizerConfig&) const = default;
};

struct CheckpointConfig {
  std::string dir;                   // empty: no checkpoints
  int every = 0;                     // steps; 0 = only at the end and on SIGUSR1
  int keep = 2;                      // newest complete ones kept, at least 2
  bool resume = true;                // continue from the newest complete one

  bool operator==(const CheckpointConfig&) const = default;
};

struct LoggingConfig {
  LogFormat format = LogFormat::kText;
  int every = 1;                     // steps between progress lines
  std::string metrics;               // JSON lines file; empty: none
  std::string tensorboard;           // folder; empty: none
  std::string trace;                 // Chrome trace file prefix; empty: none
  int trace_begin = 0;               // first traced step
  int trace_steps = 0;               // number of traced steps
  int profile_begin = 0;             // first step of the window for NVIDIA's profilers
  int profile_steps = 0;             // length of that window; 0 = none

  bool operator==(const LoggingConfig&) const = default;
};

struct RunConfig {
  ModelConfig model;
  ParallelConfig parallel;
  OverlapConfig overlap;
  TrainConfig train;
  DataConfig data;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  LoggingConfig logging;

  // Valid after resolve(): dp and microbatch_group are filled in.
  [[nodiscard]] int world() const { return parallel.pp * parallel.dp; }
  [[nodiscard]] int microbatches() const;     // per data-parallel rank and step
  [[nodiscard]] std::int64_t tokens_per_microbatch() const;  // micro_batch * seq_len

  bool operator==(const RunConfig&) const = default;
};

}  // namespace tandem
