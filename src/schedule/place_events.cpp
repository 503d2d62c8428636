#include <bit>

#include "clocks.h"
#include "tandem/base/error.h"
#include "tandem/schedule/lower.h"

namespace tandem {
namespace {

class EventPlacer {
 public:
  EventPlacer(Program program, EventMode mode, bool delay_wgrad)
      : program_(std::move(program)),
        order_(mode),
        records_(recording_instrs(program_, delay_wgrad)),
        waits_(program_.instrs.size(), 0),
        awaited_(program_.instrs.size(), 0) {
    for (int b = 0; b < program_.num_buffers; ++b) order_.add_buffer();
  }

  Program run() {
    for (std::size_t i = 0; i < program_.instrs.size(); ++i) find_waits(i);
    emit();
    return std::move(program_);
  }

 private:
  void find_waits(std::size_t i) {
    const Instr& instr = program_.instrs[i];
    uses_.clear();
    for (const SlotAccess& use : instr.uses) {
      const std::int32_t buffer = program_.slots[static_cast<std::size_t>(use.slot)].buffer;
      TANDEM_CHECK(buffer >= 0, "slots must be bound before events are placed");
      uses_.push_back({buffer, use.access});
    }
    Clock clock = order_.start(instr);
    TANDEM_CHECK(order_.order(instr, uses_, clock, waits_[i]),
                 "no wait of its own direction can order {}", to_text(program_, instr));
    if (instr.op == Op::kHostWait) {
      TANDEM_CHECK(waits_[i] == 0u, "{} reads what its event does not cover",
                   to_text(program_, instr));
      mark_awaited(order_.event(instr.event.dir, instr.event.lane));
    }
    for (LaneSet rest = waits_[i]; rest != 0; rest &= rest - 1)
      mark_awaited(order_.event(instr.dir, static_cast<Lane>(std::countr_zero(rest))));
    order_.finish(static_cast<std::int32_t>(i), instr, uses_, clock, records_[i] != 0);
  }

  void mark_awaited(const EventId& event) {
    const std::int32_t index = order_.recorded_behind(event);
    TANDEM_CHECK(index >= 0, "an event is awaited before it is recorded");
    awaited_[static_cast<std::size_t>(index)] = 1;
  }

  void emit() {
    std::size_t size = program_.instrs.size();
    for (std::size_t i = 0; i < waits_.size(); ++i)
      size += static_cast<std::size_t>(std::popcount(waits_[i]) + awaited_[i]);
    std::vector<Instr> instrs;
    instrs.reserve(size);
    for (std::size_t i = 0; i < program_.instrs.size(); ++i) {
      const Dir dir = program_.instrs[i].dir;
      const Lane lane = program_.instrs[i].lane;
      for (LaneSet rest = waits_[i]; rest != 0; rest &= rest - 1)
        instrs.push_back(
            event_instr(Op::kWait, lane, dir, static_cast<Lane>(std::countr_zero(rest))));
      instrs.push_back(std::move(program_.instrs[i]));
      if (awaited_[i] != 0) instrs.push_back(event_instr(Op::kRecord, lane, dir, lane));
    }
    program_.instrs = std::move(instrs);
  }

  [[nodiscard]] Instr event_instr(Op op, Lane lane, Dir dir, Lane event_lane) const {
    Instr instr;
    instr.op = op;
    instr.lane = lane;
    instr.dir = dir;
    instr.event = order_.event(dir, event_lane);
    return instr;
  }

  Program program_;
  LaneOrder order_;
  std::vector<char> records_;   // by instruction: an event may be recorded behind it
  std::vector<LaneSet> waits_;  // by instruction: lanes to wait for
  std::vector<char> awaited_;   // by instruction: somebody waits for its event
  std::vector<BufferUse> uses_;
};

}  // namespace

Program place_events(Program program, EventMode mode, bool delay_wgrad) {
  return EventPlacer(std::move(program), mode, delay_wgrad).run();
}

}  // namespace tandem
