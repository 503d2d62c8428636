#include <algorithm>

#include "clocks.h"
#include "free_buffers.h"
#include "tandem/base/error.h"
#include "tandem/schedule/lower.h"

namespace tandem {
namespace {

// Decides whether the writer of a slot that will be sent may wait for the latest SEND of its
// direction. A SEND lasts until its receiver takes it, so such a wait could close a circle around
// the ring of stages. Let every stage run one task of a direction per tick, task k of the r-th
// stage along the direction in tick k + r. Then the transfer of its task j takes place in tick
// j + r, between task j here and there; at the end of the ring `late` ticks later, because the
// first stage takes the micro-batches of a group only after it has fed all of them. The RECV of
// task i belongs to tick i - 1 + r. Waits that point to an earlier tick never form a circle.
class LatestSends {
 public:
  LatestSends(const PipelineShape& shape, int stage) : shape_(shape), stage_(stage) {}

  void sent(const Instr& send) { latest_[static_cast<std::size_t>(send.dir)] = task_index(send); }

  [[nodiscard]] bool may_await(const Instr& writer) const {
    const int end_of_ring = writer.dir == Dir::kFwd ? shape_.pp - 1 : 0;
    const int late = stage_ == end_of_ring ? shape_.group - shape_.pp : 0;
    const int age = task_index(writer) - latest_[static_cast<std::size_t>(writer.dir)];
    // A chunk without layers receives what it sends. Without a ring there is no circle.
    if (writer.op == Op::kRecv) return shape_.vpp == 1 || age >= late + 2;
    return age >= late;  // a node: it writes at the end of its tick
  }

 private:
  // Position of the task among those of its direction.
  [[nodiscard]] int task_index(const Instr& instr) const {
    const int first = instr.microbatch / shape_.group * shape_.group;
    const int size = std::min(shape_.group, shape_.microbatches - first);
    const int chunk = instr.dir == Dir::kFwd ? instr.chunk : shape_.vpp - 1 - instr.chunk;
    return first * shape_.vpp + chunk * size + instr.microbatch - first;
  }

  PipelineShape shape_;
  int stage_;
  std::array<int, 2> latest_{};  // by direction: index of the task sent last
};

class Binder {
 public:
  Binder(Program program, const LowerOptions& options)
      : program_(std::move(program)),
        order_(EventMode::kPerDirection),
        records_(recording_instrs(program_, options.delay_wgrad)),
        last_use_(program_.slots.size(), -1),
        sent_(program_.slots.size(), 0),
        sends_(options.shape, program_.stage) {
    for (std::size_t i = 0; i < program_.instrs.size(); ++i)
      for (const SlotAccess& use : program_.instrs[i].uses) {
        last_use_[static_cast<std::size_t>(use.slot)] = static_cast<std::int32_t>(i);
        if (program_.instrs[i].op == Op::kSend) sent_[static_cast<std::size_t>(use.slot)] = 1;
      }
    program_.num_buffers = 0;
    for (Slot& slot : program_.slots) slot.buffer = -1;
  }

  Program run() {
    for (std::size_t i = 0; i < program_.instrs.size(); ++i)
      enqueue(static_cast<std::int32_t>(i), program_.instrs[i]);
    return std::move(program_);
  }

 private:
  Slot& slot_of(const SlotAccess& use) {
    return program_.slots[static_cast<std::size_t>(use.slot)];
  }

  void enqueue(std::int32_t index, const Instr& instr) {
    if (instr.op == Op::kSend) sends_.sent(instr);
    uses_.clear();
    for (const SlotAccess& use : instr.uses)
      if (slot_of(use).buffer >= 0) uses_.push_back({slot_of(use).buffer, use.access});
    Clock clock = ordered(instr);
    if (uses_.size() < instr.uses.size()) {
      for (const SlotAccess& use : instr.uses) {
        Slot& slot = slot_of(use);
        if (slot.buffer >= 0) continue;
        slot.buffer = buffer_for(use, instr, clock);
        uses_.push_back({slot.buffer, use.access});
      }
      clock = ordered(instr);
    }
    order_.finish(index, instr, uses_, clock, records_[static_cast<std::size_t>(index)] != 0);
    for (const SlotAccess& use : instr.uses) {
      const Slot& slot = slot_of(use);
      if (last_use_[static_cast<std::size_t>(use.slot)] == index && !persistent(slot.kind))
        free_list(slot.kind, is_sent(use.slot))
            .push(slot.buffer, order_.last_accesses(slot.buffer));
    }
  }

  Clock ordered(const Instr& instr) {
    Clock clock = order_.start(instr);
    LaneSet waits = 0;
    TANDEM_CHECK(order_.order(instr, uses_, clock, waits),
                 "no wait of its own direction can order {}", to_text(program_, instr));
    return clock;
  }

  [[nodiscard]] bool is_sent(std::int32_t slot) const {
    return sent_[static_cast<std::size_t>(slot)] != 0;
  }

  // Buffers whose last slot was sent and those of other slots are kept apart: a send may last as
  // long as its receiver likes, so only the next slot to be sent waits for it, at the end of the
  // next task. Taking the buffers of sent slots first is what bounds their number.
  std::int32_t buffer_for(const SlotAccess& use, const Instr& instr, Clock& clock) {
    const SlotKind kind = slot_of(use).kind;
    if (!persistent(kind)) {
      const bool sent = is_sent(use.slot);
      std::int32_t buffer = -1;
      if (sent) buffer = take(free_list(kind, true), instr, clock, sends_.may_await(instr));
      if (buffer < 0) buffer = take(free_list(kind, false), instr, clock, instr.op == Op::kRecv);
      if (buffer >= 0) return buffer;
    }
    order_.add_buffer();
    return program_.num_buffers++;
  }

  // The buffer freed last whose accesses are all ordered before `clock`; failing that, and where
  // the writer may wait, the one freed last that waits of the writer's own direction can order.
  std::int32_t take(FreeBuffers& list, const Instr& instr, Clock& clock, bool may_wait) {
    const std::int32_t buffer = list.take(clock, [](std::int32_t) { return true; });
    if (buffer >= 0 || !may_wait) return buffer;
    Clock after = clock;
    const std::int32_t awaited =
        list.take(order_.furthest(instr, clock), [&](std::int32_t candidate) {
          const BufferUse write[] = {{candidate, Access::kWrite}};
          LaneSet waits = 0;
          after = clock;
          return order_.order(instr, write, after, waits);
        });
    if (awaited >= 0) clock = after;
    return awaited;
  }

  FreeBuffers& free_list(SlotKind kind, bool sent) {
    return free_[static_cast<std::size_t>(kind)][sent ? 1 : 0];
  }

  Program program_;
  LaneOrder order_;
  std::vector<char> records_;
  std::vector<std::int32_t> last_use_;  // by slot: instruction
  std::vector<char> sent_;              // by slot
  LatestSends sends_;
  std::array<std::array<FreeBuffers, 2>, kNumSlotKinds> free_;
  std::vector<BufferUse> uses_;  // of the instruction being enqueued
};

}  // namespace

Program bind_slots(Program program, const LowerOptions& options) {
  return Binder(std::move(program), options).run();
}

}  // namespace tandem
