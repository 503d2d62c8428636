#include <algorithm>

#include "clocks.h"
#include "tandem/base/error.h"
#include "tandem/schedule/lower.h"

namespace tandem {
namespace {

class Binder {
 public:
  Binder(Program program, const LowerOptions& options)
      : program_(std::move(program)),
        order_(EventMode::kPerDirection),
        records_(recording_instrs(program_, options.delay_wgrad)),
        last_use_(program_.slots.size(), -1),
        sent_(program_.slots.size(), 0) {
    for (std::size_t i = 0; i < program_.instrs.size(); ++i)
      for (const SlotAccess& use : program_.instrs[i].uses) {
        last_use_[static_cast<std::size_t>(use.slot)] = static_cast<std::int32_t>(i);
        if (program_.instrs[i].op == Op::kSend) sent_[static_cast<std::size_t>(use.slot)] = 1;
      }
    const int stage = program_.stage, last = program_.pp - 1;
    const int late = options.shape.group - program_.pp;
    sends_[0].late = stage == last ? late : 0;
    sends_[1].late = stage == 0 ? late : 0;
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

  // Tasks of a direction since its last SEND; a task is known by its nodes.
  struct Sends {
    int late = 0;  // tasks that a receiver may run behind: the far end of the ring takes the
                   // micro-batches of a group only after it has fed all of them
    int tasks_since = 0;
    std::int32_t chunk = -1, microbatch = -1;
  };

  void follow_tasks(const Instr& instr) {
    Sends& sends = sends_[static_cast<std::size_t>(instr.dir)];
    if (instr.op == Op::kSend) sends.tasks_since = 0;
    if (instr.op != Op::kRun) return;
    if (instr.chunk == sends.chunk && instr.microbatch == sends.microbatch) return;
    sends.chunk = instr.chunk;
    sends.microbatch = instr.microbatch;
    ++sends.tasks_since;
  }

  void enqueue(std::int32_t index, const Instr& instr) {
    follow_tasks(instr);
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
        free_list(slot.kind, is_sent(use.slot)).push_back(slot.buffer);
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
      const Sends& sends = sends_[static_cast<std::size_t>(instr.dir)];
      std::int32_t buffer = -1;
      if (sent) buffer = take(free_list(kind, true), instr, clock, sends.tasks_since >= sends.late);
      if (buffer < 0) buffer = take(free_list(kind, false), instr, clock, instr.op == Op::kRecv);
      if (buffer >= 0) return buffer;
    }
    order_.add_buffer();
    return program_.num_buffers++;
  }

  // The buffer freed last whose accesses are all ordered before `clock`; failing that, and where
  // the writer may wait, the one freed last that waits of the writer's own direction can order.
  std::int32_t take(std::vector<std::int32_t>& list, const Instr& instr, Clock& clock,
                    bool may_wait) {
    for (const bool waiting : {false, true}) {
      if (waiting && !may_wait) break;
      for (auto it = list.rbegin(); it != list.rend(); ++it) {
        const BufferUse write[] = {{*it, Access::kWrite}};
        LaneSet waits = 0;
        Clock after = clock;
        const bool free = waiting ? order_.order(instr, write, after, waits)
                                  : order_.unordered(write, clock) == 0;
        if (!free) continue;
        clock = after;
        const std::int32_t buffer = *it;
        list.erase(std::next(it).base());
        return buffer;
      }
    }
    return -1;
  }

  std::vector<std::int32_t>& free_list(SlotKind kind, bool sent) {
    return free_[static_cast<std::size_t>(kind)][sent ? 1 : 0];
  }

  Program program_;
  LaneOrder order_;
  std::vector<char> records_;
  std::vector<std::int32_t> last_use_;  // by slot: instruction
  std::vector<char> sent_;              // by slot
  std::array<std::array<std::vector<std::int32_t>, 2>, kNumSlotKinds> free_;
  std::array<Sends, 2> sends_;   // by direction
  std::vector<BufferUse> uses_;  // of the instruction being enqueued
};

}  // namespace

Program bind_slots(Program program, const LowerOptions& options) {
  return Binder(std::move(program), options).run();
}

}  // namespace tandem
