#include "tandem/runtime/slot_memory.h"

#include "tandem/base/error.h"
#include "tandem/model/memory.h"

namespace tandem {
namespace {

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
      poison_(poison ? device.make_stream("poison", 0) : nullptr),
      kinds_(static_cast<std::size_t>(program.num_buffers), SlotKind::kParams),
      buffers_(static_cast<std::size_t>(program.num_buffers)) {
  for (const Slot& slot : program.slots)
    if (slot.buffer >= 0) kinds_[static_cast<std::size_t>(slot.buffer)] = slot.kind;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (sized_by_counts(kinds_[i])) continue;
    const auto bytes = static_cast<std::size_t>(slot_layout(kinds_[i], dims_, qk_norm_, 0).bytes);
    buffers_[i] = allocate(bytes, kinds_[i], i);
  }
  if (poison_) find_last_reads();
}

Buffer SlotMemory::allocate(std::size_t bytes, SlotKind kind, std::size_t buffer) {
  Buffer memory = device_.alloc(bytes, fmt::format("slot buffer {}#{}", name_of(kind), buffer));
  if (poison_ && bytes > 0) {
    device_.fill(*poison_, memory.data(), kNanByte, bytes);
    // hazard: the poison before the first node that writes the memory. A stream of its own: a lane
    // may be waiting for a peer that waits for this rank.
    poison_->sync();
  }
  return memory;
}

// Where reads lie on several lanes, or a slot is changed after a read, the last one in the program
// need not be the last one in time.
void SlotMemory::find_last_reads() {
  constexpr std::int32_t kNone = -1, kUnknown = -2;
  last_reads_.assign(program_.slots.size(), kNone);
  const auto lane_of = [&](std::int32_t i) {
    return program_.instrs[static_cast<std::size_t>(i)].lane;
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(program_.instrs.size()); ++i)
    for (const SlotAccess& use : program_.instrs[static_cast<std::size_t>(i)].uses) {
      std::int32_t& last = last_reads_[static_cast<std::size_t>(use.slot)];
      if (last == kUnknown) continue;
      if (use.access == Access::kRead)
        last = last == kNone || lane_of(last) == lane_of(i) ? i : kUnknown;
      else if (last != kNone)
        last = kUnknown;
    }
}

void SlotMemory::release(Stream& stream, const Instr& instr) {
  if (!poison_) return;
  const auto index = static_cast<std::int32_t>(&instr - program_.instrs.data());
  for (const SlotAccess& use : instr.uses) {
    const Slot& slot = program_.slots[static_cast<std::size_t>(use.slot)];
    if (persistent(slot.kind) || last_reads_[static_cast<std::size_t>(use.slot)] != index) continue;
    const Buffer& memory = buffers_[static_cast<std::size_t>(slot.buffer)];
    device_.fill(stream, memory.data(), kNanByte, memory.bytes());
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
    device_.fill(stream, data, kNanByte, static_cast<std::size_t>(bytes));
  return {slot.kind, offset, access.access, data, received};
}

void SlotMemory::grow(std::size_t buffer, const Slot& slot, std::int64_t bytes,
                      std::int64_t received) {
  Buffer larger;
  try {
    larger = allocate(static_cast<std::size_t>(with_headroom(bytes)), slot.kind, buffer);
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
