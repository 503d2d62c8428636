// Happens-before inside one stage. Time is a vector clock over the lanes, the host included: work
// on one lane is ordered by the lane, work enqueued later than a HOST_WAIT is ordered after what
// the host waited for, and a WAIT carries over the clock its RECORD saw.
#include <algorithm>
#include <array>
#include <bit>

#include "check_findings.h"

namespace tandem::checking {
namespace {

constexpr std::int32_t kNone = -1;
constexpr int kNumDirs = 2;

using Clock = std::array<std::int32_t, kNumLanes>;

void join(Clock& clock, const Clock& other) {
  for (int l = 0; l < kNumLanes; ++l) clock[l] = std::max(clock[l], other[l]);
}

constexpr int index(Lane lane) {
  return static_cast<int>(lane);
}
constexpr int index(Dir dir) {
  return static_cast<int>(dir);
}

// The last access of one kind from each lane. An access that is ordered after the last one of a
// lane is ordered after all earlier ones of that lane, so nothing else need be kept.
struct LastAccesses {
  std::array<std::int32_t, kNumLanes> tick, instr;
  std::uint8_t lanes = 0;  // bit set of lanes that have one

  void put(int lane, std::int32_t at, std::int32_t i) {
    tick[lane] = at;
    instr[lane] = i;
    lanes |= static_cast<std::uint8_t>(1U << lane);
  }
  // The instruction that `clock` is not ordered after; kNone if it is ordered after all.
  [[nodiscard]] std::int32_t unordered(const Clock& clock) const {
    for (unsigned left = lanes; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      if (clock[lane] < tick[lane]) return instr[lane];
    }
    return kNone;
  }
};

// A piece of memory: a buffer, or a slot that has not been bound to one.
struct Memory {
  LastAccesses writes, reads;
  std::int32_t owner = kNone;     // slot whose content it holds
  std::int32_t taken_by = kNone;  // instruction that gave it to the owner
};

// (chunk, micro-batch, layer) triples of a program as flat indices.
class LayerTable {
 public:
  explicit LayerTable(const Program& program) {
    for (const Instr& instr : program.instrs) {
      chunks_ = std::max(chunks_, instr.chunk + 1);
      microbatches_ = std::max(microbatches_, instr.microbatch + 1);
      layers_ = std::max(layers_, instr.layer + 1);
    }
    known_.assign(static_cast<std::size_t>(chunks_) * microbatches_ * layers_, false);
  }
  void set(const Instr& instr) {
    if (in_range(instr)) known_[at(instr)] = true;
  }
  [[nodiscard]] bool has(const Instr& instr) const { return in_range(instr) && known_[at(instr)]; }

 private:
  static bool in_range(const Instr& i) { return i.chunk >= 0 && i.microbatch >= 0 && i.layer >= 0; }
  [[nodiscard]] std::size_t at(const Instr& i) const {
    return (static_cast<std::size_t>(i.chunk) * microbatches_ + i.microbatch) * layers_ + i.layer;
  }
  int chunks_ = 0, microbatches_ = 0, layers_ = 0;
  std::vector<bool> known_;
};

bool needs_counts(const Instr& instr) {
  return instr.op == Op::kRun && instr.phase == Phase::kFwd &&
         (instr.node == NodeKind::kDispatch || instr.node == NodeKind::kExperts ||
          instr.node == NodeKind::kCombine);
}

class OrderCheck {
 public:
  OrderCheck(const Program& program, Findings& findings, CheckReport& report)
      : program_(program),
        findings_(findings),
        report_(report),
        memory_(program.num_buffers + program.slots.size()),
        written_(program.slots.size(), false),
        counts_(program) {}

  void run() {
    const auto size = static_cast<std::int32_t>(program_.instrs.size());
    for (std::int32_t i = 0; i < size; ++i) step(i, program_.instrs[i]);
    report_.instrs += size;
  }

 private:
  struct Event {
    Clock clock{};
    std::int32_t record = kNone;
    std::int32_t after = kNone;  // the work it was recorded behind
  };

  void step(std::int32_t i, const Instr& instr) {
    Clock& clock = clocks_[index(instr.lane)];
    join(clock, clocks_[index(Lane::kHost)]);
    switch (instr.op) {
      case Op::kRecord:
        record(i, instr);
        break;
      case Op::kWait:
        wait(i, instr);
        break;
      case Op::kHostWait:
        wait(i, instr);
        counts_.set(instr);
        work(i, instr);
        break;
      default:
        if (needs_counts(instr) && !counts_.has(instr))
          findings_.add(Finding::Kind::kMissingCounts, program_.stage, [&] {
            return locate(program_, i) +
                   " needs token counts but no HOST_WAIT for them precedes it";
          });
        work(i, instr);
    }
  }

  void record(std::int32_t i, const Instr& instr) {
    ++report_.records;
    event_of(instr) = {clocks_[index(instr.lane)], i, last_work_[index(instr.lane)]};
  }

  void wait(std::int32_t i, const Instr& instr) {
    ++report_.waits;
    const Event& event = event_of(instr);
    if (event.record == kNone) {
      findings_.add(Finding::Kind::kBadEvent, program_.stage, [&] {
        return locate(program_, i) + " waits for an event that nothing before it records";
      });
      return;
    }
    join(clocks_[index(instr.lane)], event.clock);
    if (event.after != kNone)
      ++pending_[index(instr.lane)][index(program_.instrs[event.after].dir)];
  }

  // A wait belongs to the work it precedes on its lane, so its direction is known only here.
  void work(std::int32_t i, const Instr& instr) {
    const int lane = index(instr.lane);
    report_.cross_direction_waits += pending_[lane][1 - index(instr.dir)];
    pending_[lane] = {0, 0};
    last_work_[lane] = i;
    ++clocks_[lane][lane];
    for (const SlotAccess& use : instr.uses) access(i, lane, use);
  }

  void access(std::int32_t i, int lane, const SlotAccess& use) {
    const Slot& slot = program_.slots[use.slot];
    const bool reads = use.access != Access::kWrite, writes = use.access != Access::kRead;
    Memory& memory = memory_[slot.buffer >= 0 ? slot.buffer : program_.num_buffers + use.slot];
    const bool there_from_start = persistent(slot.kind) && !first_access_writes(slot.kind);
    if (reads && !there_from_start && memory.owner != use.slot) report_content(i, use.slot, memory);
    if (!reads && written_[use.slot]) report_overwritten(i, use.slot);
    if (memory.owner != use.slot) {
      memory.owner = use.slot;
      memory.taken_by = i;
    }
    written_[use.slot] = written_[use.slot] || writes;

    const Clock& clock = clocks_[lane];
    std::int32_t other = memory.writes.unordered(clock);
    if (other == kNone && writes) other = memory.reads.unordered(clock);
    if (other != kNone) report_race(i, other, use.slot);
    if (writes) {
      // Whatever is ordered after this write is ordered after all it was ordered after.
      if (other == kNone) memory.writes.lanes = memory.reads.lanes = 0;
      memory.writes.put(lane, clock[lane], i);
    } else {
      memory.reads.put(lane, clock[lane], i);
    }
  }

  void report_content(std::int32_t i, std::int32_t slot, const Memory& memory) {
    findings_.add(Finding::Kind::kUninitialised, program_.stage, [&] {
      std::string text = locate(program_, i) + " reads " + describe(slot);
      if (!written_[slot]) return text + ", which nothing before it writes";
      return text + ", whose buffer " + locate(program_, memory.taken_by) + " has taken";
    });
  }

  void report_overwritten(std::int32_t i, std::int32_t slot) {
    findings_.add(Finding::Kind::kOverwritten, program_.stage, [&] {
      return locate(program_, i) + " writes " + describe(slot) +
             " afresh, which was written before";
    });
  }

  void report_race(std::int32_t i, std::int32_t other, std::int32_t slot) {
    findings_.add(Finding::Kind::kRace, program_.stage, [&] {
      return locate(program_, i) + " is not ordered after " + locate(program_, other) + " on " +
             describe(slot);
    });
  }

  [[nodiscard]] std::string describe(std::int32_t index) const {
    const Slot& slot = program_.slots[index];
    std::string text = fmt::format("{}.c{}", name_of(slot.kind), slot.chunk);
    if (slot.microbatch >= 0) text += fmt::format(".m{}", slot.microbatch);
    if (slot.layer >= 0) text += fmt::format(".l{}", slot.layer);
    if (slot.buffer >= 0) text += fmt::format("@{}", slot.buffer);
    return text;
  }

  Event& event_of(const Instr& instr) {
    return events_[index(instr.event.dir)][index(instr.event.lane)];
  }

  const Program& program_;
  Findings& findings_;
  CheckReport& report_;
  std::vector<Memory> memory_;  // buffers, then unbound slots
  std::vector<bool> written_;   // [slot]
  LayerTable counts_;           // triples whose token counts the host has read
  std::array<Clock, kNumLanes> clocks_{};
  std::array<std::array<Event, kNumLanes>, kNumDirs> events_{};
  std::array<std::int32_t, kNumLanes> last_work_ = [] {
    std::array<std::int32_t, kNumLanes> none;
    none.fill(kNone);
    return none;
  }();
  // Waits since the lane's last work, by the direction of the work they wait for.
  std::array<std::array<int, kNumDirs>, kNumLanes> pending_{};
};

}  // namespace

void check_order(const Program& program, Findings& findings, CheckReport& report) {
  OrderCheck(program, findings, report).run();
}

}  // namespace tandem::checking
