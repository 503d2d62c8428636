#include "tandem/runtime/slot_memory.h"

#include "tandem/base/error.h"
#include "tandem/model/memory.h"

namespace tandem {
namespace {

constexpr unsigned char kPoisonByte = 0xFF;  // NaN in fp32 and bf16

// Routing changes a little every step: a quarter more room makes growth rare after the first steps.
std::int64_t with_headroom(std::int64_t bytes) {
  return bytes + bytes / 4;
}

}  // namespace

SlotMemory::SlotMemory(Device& device, const Program& program, const ModelDims& dims,
                       QkNorm qk_norm, bool poison)
    : device_(device),
      program_(program),
      dims_(dims),
      qk_norm_(qk_norm),
      poison_(poison),
      kinds_(static_cast<std::size_t>(program.num_buffers), SlotKind::kParams),
      buffers_(static_cast<std::size_t>(program.num_buffers)) {
  for (const Slot& slot : program.slots)
    if (slot.buffer >= 0) kinds_[static_cast<std::size_t>(slot.buffer)] = slot.kind;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (sized_by_counts(kinds_[i])) continue;
    const auto bytes = static_cast<std::size_t>(slot_layout(kinds_[i], dims_, qk_norm_, 0).bytes);
    buffers_[i] = device_.alloc(bytes, fmt::format("slot buffer {}#{}", name_of(kinds_[i]), i));
  }
}

BoundSlot SlotMemory::bind(Stream& stream, const Instr& instr, std::size_t use,
                           std::int64_t received) {
  const SlotAccess access = instr.uses[use];
  const Slot& slot = program_.slots[static_cast<std::size_t>(access.slot)];
  const int offset = slot.layer < 0 ? 0 : slot.layer - instr.layer;
  if (persistent(slot.kind)) return {slot.kind, offset, access.access, nullptr, 0};

  const auto index = static_cast<std::size_t>(slot.buffer);
  const std::int64_t bytes = slot_layout(slot.kind, dims_, qk_norm_, received).bytes;
  if (static_cast<std::int64_t>(buffers_[index].bytes()) < bytes) {
    TANDEM_CHECK(access.access == Access::kWrite, "{} is read with more rows than it was written",
                 name_of(slot.kind));
    grow(index, slot, bytes, received);
  }
  auto* data = static_cast<std::byte*>(buffers_[index].data());
  if (poison_ && access.access == Access::kWrite)
    device_.fill(stream, data, kPoisonByte, static_cast<std::size_t>(bytes));
  return {slot.kind, offset, access.access, data, received};
}

void SlotMemory::grow(std::size_t buffer, const Slot& slot, std::int64_t bytes,
                      std::int64_t received) {
  Buffer larger;
  try {
    larger = device_.alloc(static_cast<std::size_t>(with_headroom(bytes)),
                           fmt::format("slot buffer {}#{}", name_of(slot.kind), buffer));
  } catch (const Error& error) {
    throw_error(error.code(),
                "{} of layer {}, micro-batch {} needs {} bytes for {} received rows: {}. Lower "
                "train.micro_batch, raise parallel.ep, or raise model.aux_loss_coef to balance the "
                "experts",
                name_of(slot.kind), slot.layer, slot.microbatch, bytes, received, error.what());
  }
  if (buffers_[buffer].bytes() > 0) {
    replaced_.push_back(std::move(buffers_[buffer]));
    ++growths_;
  }
  buffers_[buffer] = std::move(larger);
}

void SlotMemory::collect() {
  replaced_.clear();
}

SlotBytes SlotMemory::bytes() const {
  SlotBytes sum;
  sum.growths = growths_;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    (saved_for_backward(kinds_[i]) ? sum.saved : sum.transient) +=
        static_cast<std::int64_t>(buffers_[i].bytes());
  return sum;
}

}  // namespace tandem
