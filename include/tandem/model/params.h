// THE parameter list: initialisation, loading, saving, the optimizer and the counts all read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/plan/grid.h"
#include "tandem/plan/partition.h"

namespace tandem {

enum class ParamKind : std::uint8_t {
  kEmbedding,      // [vocab, H]
  kAttnNorm,       // [H]
  kQkv,            // [qkv_width, H]   rows: q heads, k heads, v heads
  kQNorm, kKNorm,  // per_head: [head_dim]; full: [q_width], [kv_width]
  kAttnOut,        // [H, q_width]
  kMlpNorm,        // [H]
  kRouter,         // [experts, H]
  kExpertGateUp,   // [local_experts, 2 * moe_ffn, H]   per expert: gate rows, then up rows
  kExpertDown,     // [local_experts, H, moe_ffn]
  kMlpGateUp,      // [2 * dense_ffn, H]
  kMlpDown,        // [H, dense_ffn]
  kFinalNorm,      // [H]
  kHead,           // [vocab, H]
};
inline constexpr int kNumParamKinds = static_cast<int>(ParamKind::kHead) + 1;

// Which ranks hold a copy, hence over whom gradients are summed and the optimizer state is sharded.
enum class ParamGroup : std::uint8_t { kDense /* dp group */, kExpert /* edp group */ };

// A parameter as one rank holds it. y = x W^T for every matrix W [out, in].
struct Param {
  std::string name;             // "layers.3.experts.gate_up"; the same on every rank
  ParamKind kind;
  ParamGroup group;
  int layer = -1;               // global layer; -1 outside layers
  int chunk = 0;
  std::int64_t rows = 0, cols = 1;   // local shape, experts stacked: rows = local_experts * ...
  std::int64_t global_size = 0;      // elements of the whole tensor over all ep ranks
  std::int64_t global_begin = 0;     // first element of this rank's part within it
  std::int64_t offset = 0;           // first element within the rank's flat (chunk, group) buffer
  double init_std = 0.0;             // 0: filled with `fill`
  float fill = 0.0F;
  bool decay = false;
  [[nodiscard]] std::int64_t size() const { return rows * cols; }
};

// One flat buffer per (chunk, group): the unit of gradient sync and of optimizer sharding. Its
// length is padded so that every rank of the group owns an equal slice (a multiple of 16 elements).
struct ParamBucket {
  int chunk = 0;
  ParamGroup group = ParamGroup::kDense;
  std::int64_t size = 0;        // elements, sum of its parameters
  std::int64_t padded = 0;      // size rounded up; slice of member i is [i, i + 1) * padded / members
  int members = 1;              // dp or edp
};

struct ParamTable {
  // By chunk, then layer, then kind; embedding before the layers, final norm and head after them.
  std::vector<Param> params;
  std::vector<ParamBucket> buckets;   // by chunk, dense before expert; empty buckets are left out

  [[nodiscard]] const Param* find(ParamKind kind, int layer) const;  // nullptr if not on this rank
  [[nodiscard]] const ParamBucket* bucket(int chunk, ParamGroup group) const;
};

// The parameters that live on `rank`. With tied embeddings the last stage holds its own copy named
// "embedding" too (kind kHead), also where it is the first stage: such a table has that name twice.
// Gradients of the two copies are summed before the update. Throws Error(kUsage) where ep does not
// divide the experts.
ParamTable make_params(const RunConfig& config, const RankGrid& grid, const Partition& partition,
                       int rank);

// Initial value of elements [begin, begin + count) of the tensor (global element numbers): normal
// with init_std, by Philox over (seed, stream_id(name), element); or the constant fill.
void init_values(const Param& param, std::uint64_t seed, std::int64_t begin, std::int64_t count,
                 float* out);

struct ParamCount { std::int64_t total = 0, active = 0; };  // active: topk instead of all experts
ParamCount count_params(const ModelConfig& model);          // tied embeddings count once

}  // namespace tandem
