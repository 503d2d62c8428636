// LaneOrder: what is ordered before what while a program is enqueued. Every lane (the host is one)
// has a vector clock: how many instructions of each lane happened before the lane's next one. Every
// buffer remembers its last read and write on each lane; as lanes are FIFOs, the last one stands
// for all earlier ones.
//
// Use, per instruction in program order: start(), then order() for the waits it needs, then
// finish(). bind_slots and place_events go through the same calls, so the waits that one counts on
// are the waits that the other creates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/schedule/program.h"

namespace tandem {

using Clock = std::array<std::int32_t, kNumLanes>;

struct BufferUse {
  std::int32_t buffer;
  Access access;
};

using LaneSet = std::uint32_t;  // bit per lane
constexpr LaneSet bit(Lane lane) {
  return 1u << static_cast<int>(lane);
}

class LaneOrder {
 public:
  explicit LaneOrder(EventMode mode) : mode_(mode) {}

  void add_buffer() { history_.emplace_back(); }

  // Clock of `instr` before any wait: its lane's, and the enqueuing host's. A HOST_WAIT includes
  // the event it waits for.
  [[nodiscard]] Clock start(const Instr& instr) const;

  // Lanes with an access that conflicts with `uses` and is not ordered before `clock`.
  [[nodiscard]] LaneSet unordered(std::span<const BufferUse> uses, const Clock& clock) const;

  // The fewest lanes whose latest event of the instruction's direction, awaited, orders all
  // conflicting accesses; joins their clocks into `clock`. False where no wait can.
  bool order(const Instr& instr, std::span<const BufferUse> uses, Clock& clock,
             LaneSet& waits) const;

  // The last access of each lane to the buffer.
  [[nodiscard]] Clock last_accesses(std::int32_t buffer) const;

  // No wait of `instr` that order() may find orders anything behind this.
  [[nodiscard]] Clock furthest(const Instr& instr, Clock clock) const;

  // Enqueues the instruction, ordered after `clock`; `records`: an event is recorded behind it.
  void finish(std::int32_t index, const Instr& instr, std::span<const BufferUse> uses, Clock clock,
              bool records);

  // Identity of an event: in shared mode one per lane.
  [[nodiscard]] EventId event(Dir dir, Lane lane) const {
    return {mode_ == EventMode::kShared ? Dir::kFwd : dir, lane};
  }
  // Index of the instruction behind which the event was last recorded; -1: not yet.
  [[nodiscard]] std::int32_t recorded_behind(const EventId& id) const { return at(id).index; }

 private:
  struct Event {
    Clock clock{};
    std::int32_t index = -1;
  };
  struct Accesses {
    Clock reads{}, writes{};  // 0: none
  };
  [[nodiscard]] const Event& at(const EventId& id) const {
    return events_[static_cast<std::size_t>(id.dir)][static_cast<std::size_t>(id.lane)];
  }

  EventMode mode_;
  std::array<Clock, kNumLanes> lanes_{};
  std::array<std::array<Event, kNumLanes>, 2> events_{};
  std::vector<Accesses> history_;  // by buffer
};

// Behind which instructions an event may be recorded, before those nobody waits for are left out.
// A delayed weight gradient records nothing, so that whoever waits for the node before it does not
// wait for it too, except the last one before the gradients of its chunk are summed.
std::vector<char> recording_instrs(const Program& program, bool delay_wgrad);

}  // namespace tandem
