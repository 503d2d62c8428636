#include "clocks.h"

#include <bit>

namespace tandem {
namespace {

void join(Clock& clock, const Clock& other) {
  for (std::size_t l = 0; l < clock.size(); ++l) clock[l] = std::max(clock[l], other[l]);
}

constexpr Lane kLeastWanted[] = {Lane::kRecvFwd, Lane::kRecvBwd, Lane::kSendFwd, Lane::kSendBwd,
                                 Lane::kDp,      Lane::kEp,      Lane::kCompute};

bool is_weight_of(const Instr& next, const Instr& node) {
  return next.op == Op::kRun && next.phase == Phase::kBwdWeight && next.node == node.node &&
         next.chunk == node.chunk && next.microbatch == node.microbatch && next.layer == node.layer;
}

bool records_when_enqueued(const Program& program, std::size_t i, bool delay_wgrad) {
  const Instr& instr = program.instrs[i];
  switch (instr.op) {
    case Op::kSend:
    case Op::kRecv:
    case Op::kGradSync:
      return true;
    case Op::kRun:
      if (instr.phase == Phase::kBwdWeight) return !delay_wgrad;
      if (instr.phase == Phase::kBwdInput && !delay_wgrad && i + 1 < program.instrs.size())
        return !is_weight_of(program.instrs[i + 1], instr);
      return true;
    default:
      return false;
  }
}

}  // namespace

Clock LaneOrder::start(const Instr& instr) const {
  Clock clock = lanes_[static_cast<std::size_t>(instr.lane)];
  join(clock, lanes_[static_cast<std::size_t>(Lane::kHost)]);
  if (instr.op == Op::kHostWait) join(clock, at(event(instr.event.dir, instr.event.lane)).clock);
  return clock;
}

LaneSet LaneOrder::unordered(std::span<const BufferUse> uses, const Clock& clock) const {
  LaneSet lanes = 0;
  for (const BufferUse& use : uses) {
    const Accesses& past = history_[static_cast<std::size_t>(use.buffer)];
    for (std::size_t l = 0; l < clock.size(); ++l) {
      const bool after_write = past.writes[l] > clock[l];
      const bool after_read = use.access != Access::kRead && past.reads[l] > clock[l];
      if (after_write || after_read) lanes |= 1u << l;
    }
  }
  return lanes;
}

bool LaneOrder::order(const Instr& instr, std::span<const BufferUse> uses, Clock& clock,
                      LaneSet& waits) const {
  const auto joined = [&](LaneSet lanes) {
    Clock result = clock;
    for (LaneSet rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<Lane>(std::countr_zero(rest));
      join(result, at(event(instr.dir, lane)).clock);
    }
    return result;
  };
  waits = unordered(uses, clock);
  if (waits == 0) return true;
  if (unordered(uses, joined(waits)) != 0) return false;
  // One lane's event may carry another's: keep only those that are needed beside the rest. Of two
  // that would do, the one of a receiving lane goes: it may stand for a transfer still to come.
  for (const Lane lane : kLeastWanted) {
    if (std::has_single_bit(waits)) break;
    const LaneSet fewer = waits & ~bit(lane);
    if (fewer != waits && unordered(uses, joined(fewer)) == 0) waits = fewer;
  }
  clock = joined(waits);
  return true;
}

Clock LaneOrder::last_accesses(std::int32_t buffer) const {
  const Accesses& past = history_[static_cast<std::size_t>(buffer)];
  Clock last = past.reads;
  join(last, past.writes);
  return last;
}

Clock LaneOrder::furthest(const Instr& instr, Clock clock) const {
  for (int lane = 0; lane < kNumLanes; ++lane)
    join(clock, at(event(instr.dir, static_cast<Lane>(lane))).clock);
  return clock;
}

void LaneOrder::finish(std::int32_t index, const Instr& instr, std::span<const BufferUse> uses,
                       Clock clock, bool records) {
  const auto lane = static_cast<std::size_t>(instr.lane);
  const std::int32_t now = ++clock[lane];
  for (const BufferUse& use : uses) {
    Accesses& past = history_[static_cast<std::size_t>(use.buffer)];
    if (use.access != Access::kWrite) past.reads[lane] = now;
    if (use.access != Access::kRead) past.writes[lane] = now;
  }
  lanes_[lane] = clock;
  if (records) {
    const EventId id = event(instr.dir, instr.lane);
    events_[static_cast<std::size_t>(id.dir)][lane] = {clock, index};
  }
}

std::vector<char> recording_instrs(const Program& program, bool delay_wgrad) {
  std::vector<char> records(program.instrs.size());
  std::vector<std::int32_t> last_use(program.slots.size(), -1);
  for (std::size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& instr = program.instrs[i];
    records[i] = records_when_enqueued(program, i, delay_wgrad);
    std::int32_t latest = -1;
    for (const SlotAccess& use : instr.uses) {
      std::int32_t& last = last_use[static_cast<std::size_t>(use.slot)];
      latest = std::max(latest, last);
      last = static_cast<std::int32_t>(i);
    }
    if (instr.op == Op::kGradSync && latest >= 0) records[static_cast<std::size_t>(latest)] = true;
  }
  return records;
}

}  // namespace tandem
