// Predicted bytes of one rank, by category, for `tandem plan`.
#pragma once

#include <cstdint>

#include "tandem/model/params.h"
#include "tandem/model/slot.h"

namespace tandem {

struct MemoryPlan {
  std::int64_t params = 0;        // storage dtype
  std::int64_t grads = 0;         // fp32
  std::int64_t optimizer = 0;     // master, m, v of this rank's shard
  std::int64_t saved = 0;         // slots that live from forward to backward, at the peak
  std::int64_t transient = 0;     // the other slots, at the peak
  [[nodiscard]] std::int64_t total() const { return params + grads + optimizer + saved + transient; }
};

// Parameters, gradients and optimizer of a rank; saved and transient are left 0 (the schedule
// knows them: see schedule/program.h).
MemoryPlan static_memory(const ParamTable& table, DType dtype);

// Bytes of one slot under a balanced router, where every rank receives as many rows as it sends.
// With the schedule's peak of live slots this gives `saved` and `transient`. Persistent slots: 0.
std::int64_t expected_slot_bytes(SlotKind kind, const ModelDims& dims, QkNorm qk_norm);

// True for slots that some forward node and some backward node use: they belong to `saved`, the
// others to `transient`.
bool saved_for_backward(SlotKind kind);

}  // namespace tandem
