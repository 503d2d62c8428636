#include "tandem/schedule/rank_memory.h"

#include <vector>

namespace tandem {

MemoryPlan rank_memory(const ParamTable& table, const Program& program, const RunConfig& config) {
  MemoryPlan memory = static_memory(table, config.train.dtype);
  std::vector<SlotKind> kinds(static_cast<std::size_t>(program.num_buffers), SlotKind::kParams);
  for (const Slot& slot : program.slots) kinds[static_cast<std::size_t>(slot.buffer)] = slot.kind;
  const ModelDims dims = make_dims(config);
  for (const SlotKind kind : kinds)
    (saved_for_backward(kind) ? memory.saved : memory.transient) +=
        expected_slot_bytes(kind, dims, config.model.qk_norm);
  return memory;
}

}  // namespace tandem
