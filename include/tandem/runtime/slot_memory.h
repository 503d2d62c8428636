// SlotMemory binds the buffers of a program to device memory. Slots of fixed size are allocated
// once; slots sized by the router's counts grow when they are written, keep their high-water
// mark, and never shrink. Memory replaced by a larger piece stays valid until collect().
//
// Poisoned memory holds NaN whenever no slot's value is in it: from its allocation, from the start
// of a write to its end, and after a slot's last read. A lane that comes too early or too late
// because a wait is missing then computes with NaN.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/device/device.h"
#include "tandem/model/slot.h"
#include "tandem/nn/node_ctx.h"
#include "tandem/schedule/program.h"

namespace tandem {

struct SlotBytes {
  std::int64_t saved = 0, transient = 0;  // by whether the slot lives until the backward pass
  std::int64_t growths = 0;               // times a counted buffer grew
};

class SlotMemory {
 public:
  SlotMemory(Device& device, const Program& program, const ModelDims& dims, QkNorm qk_norm,
             bool poison);

  // Memory of instr.uses[i]. `received`: rows of counted slots. A counted slot that is written
  // gets room for them; Error(kMemory) says which slot, layer and count did not fit.
  BoundSlot bind(Stream& stream, const Instr& instr, std::size_t use, std::int64_t received);

  // The instruction that uses them was enqueued: poisons the slots that nobody reads again.
  void release(Stream& stream, const Instr& instr);

  void collect();  // frees replaced memory; every lane must be idle
  [[nodiscard]] SlotBytes bytes() const;

 private:
  void grow(std::size_t buffer, const Slot& slot, std::int64_t bytes, std::int64_t received);
  [[nodiscard]] Buffer allocate(std::size_t bytes, SlotKind kind, std::size_t buffer);
  void find_last_reads();

  Device& device_;
  const Program& program_;
  const ModelDims dims_;
  const QkNorm qk_norm_;
  std::unique_ptr<Stream> poison_;        // fills fresh memory; null: no poison
  std::vector<std::int32_t> last_reads_;  // by slot: an instruction, or negative: unknown
  std::vector<SlotKind> kinds_;           // by buffer
  std::vector<Buffer> buffers_;
  std::vector<Buffer> replaced_;
  std::int64_t growths_ = 0;
};

}  // namespace tandem
