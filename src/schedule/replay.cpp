#include "tandem/schedule/replay.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

constexpr std::int32_t kNone = -1;
constexpr double kNever = -1.0;

// Instructions of all stages are numbered through; a lane is stage * kNumLanes + lane.
class Replayer {
 public:
  Replayer(std::span<const Program> programs, const Duration& duration, Peers peers)
      : programs_(programs), duration_(duration), peers_(peers) {
    std::size_t total = 0;
    for (const Program& program : programs_) {
      first_.push_back(static_cast<std::int32_t>(total));
      total += program.instrs.size();
    }
    instrs_.reserve(total);
    stage_.reserve(total);
    enqueued_after_.reserve(total);
    partner_.assign(total, kNone);
    begin_.assign(total, kNever);
    end_.assign(total, kNever);
    first_waiter_.assign(total, kNone);
    for (std::size_t s = 0; s < programs_.size(); ++s) flatten(static_cast<std::int32_t>(s));
    queue_lanes();
    if (peers_ == Peers::kAll) match_transfers();
  }

  Replay run() {
    for (std::int32_t lane = lanes() - 1; lane >= 0; --lane) runnable_.push_back(lane);
    while (!runnable_.empty()) {
      const std::int32_t lane = runnable_.back();
      runnable_.pop_back();
      while (head_[lane] < queue_begin_[lane + 1] && advance(lane)) {
      }
    }
    return result();
  }

 private:
  [[nodiscard]] std::int32_t lanes() const {
    return static_cast<std::int32_t>(programs_.size()) * kNumLanes;
  }
  [[nodiscard]] std::int32_t lane_of(std::int32_t i) const {
    return stage_[i] * kNumLanes + static_cast<std::int32_t>(instrs_[i]->lane);
  }
  [[nodiscard]] bool done(std::int32_t i) const { return end_[i] >= 0.0; }

  // Resolves, in program order, what each instruction needs from its own stage.
  void flatten(std::int32_t stage) {
    std::array<std::int32_t, 2 * kNumLanes> recorded;
    recorded.fill(kNone);
    std::int32_t host_wait = kNone;
    std::size_t steps = 0;
    for (const Instr& instr : programs_[stage].instrs) {
      const auto i = static_cast<std::int32_t>(instrs_.size());
      instrs_.push_back(&instr);
      stage_.push_back(stage);
      enqueued_after_.push_back(host_wait);
      std::int32_t& event = recorded[static_cast<std::size_t>(instr.event.dir) * kNumLanes +
                                     static_cast<std::size_t>(instr.event.lane)];
      if (instr.op == Op::kRecord) event = i;
      if (instr.op == Op::kWait || instr.op == Op::kHostWait) partner_[i] = event;
      if (instr.op == Op::kHostWait) host_wait = i;
      if (instr.op == Op::kOptStep) join_step(i, steps++);
    }
  }

  void join_step(std::int32_t i, std::size_t step) {
    if (steps_.size() <= step) steps_.resize(step + 1);
    steps_[step].members.push_back(i);
    partner_[i] = static_cast<std::int32_t>(step);
  }

  // Counting sort of the instructions by lane, stable in program order.
  void queue_lanes() {
    queue_begin_.assign(lanes() + 1, 0);
    const auto total = static_cast<std::int32_t>(instrs_.size());
    for (std::int32_t i = 0; i < total; ++i) ++queue_begin_[lane_of(i) + 1];
    for (std::int32_t l = 0; l < lanes(); ++l) queue_begin_[l + 1] += queue_begin_[l];
    head_.assign(queue_begin_.begin(), queue_begin_.end() - 1);
    queue_.resize(total);
    std::vector<std::int32_t> next = head_;
    for (std::int32_t i = 0; i < total; ++i) queue_[next[lane_of(i)]++] = i;
    free_at_.assign(lanes(), 0.0);
    next_waiter_.assign(lanes(), kNone);
  }

  // The k-th SEND from one stage to another meets the k-th RECV there, each direction by itself.
  void match_transfers() {
    const std::size_t stages = programs_.size();
    std::vector<std::vector<std::int32_t>> sends(stages * stages * 2);
    std::vector<std::size_t> received(stages * stages * 2, 0);
    const auto channel = [&](std::int32_t from, std::int32_t to, Dir dir) {
      return (from * stages + to) * 2 + static_cast<std::size_t>(dir);
    };
    const auto transfers = [&](Op op, auto&& visit) {
      for (std::size_t i = 0; i < instrs_.size(); ++i) {
        const Instr& instr = *instrs_[i];
        if (instr.op == op && instr.peer >= 0 && instr.peer < static_cast<int>(stages))
          visit(static_cast<std::int32_t>(i), instr);
      }
    };
    transfers(Op::kSend, [&](std::int32_t i, const Instr& instr) {
      sends[channel(stage_[i], instr.peer, instr.dir)].push_back(i);
    });
    transfers(Op::kRecv, [&](std::int32_t i, const Instr& instr) {
      const std::size_t c = channel(instr.peer, stage_[i], instr.dir);
      if (received[c] == sends[c].size()) return;
      partner_[i] = sends[c][received[c]++];
      partner_[partner_[i]] = i;
    });
  }

  // Runs the lane's next instruction; false if it cannot run yet. Whoever completes what it lacks
  // makes the lane runnable again.
  bool advance(std::int32_t lane) {
    const std::int32_t i = queue_[head_[lane]];
    const std::int32_t host_wait = enqueued_after_[i];
    double ready = free_at_[lane];
    if (host_wait != kNone) {
      if (!done(host_wait)) return sleep_until(lane, host_wait);
      ready = std::max(ready, end_[host_wait]);
    }
    switch (instrs_[i]->op) {
      case Op::kWait:
      case Op::kHostWait: {
        const std::int32_t record = partner_[i];
        if (record != kNone && !done(record)) return sleep_until(lane, record);
        finish(i, ready, record == kNone ? ready : std::max(ready, end_[record]));
        return true;
      }
      case Op::kSend:
      case Op::kRecv:
        if (peers_ == Peers::kAll) return meet(i, ready);
        break;
      case Op::kOptStep:
        if (peers_ == Peers::kAll) return join(i, ready);
        break;
      case Op::kRecord:
        finish(i, ready, ready);
        return true;
      case Op::kRun:
      case Op::kGradSync:
        break;
    }
    finish(i, ready, ready + time_of(i));
    return true;
  }

  // begin_ holds the arrival until the other side is there too.
  bool meet(std::int32_t i, double ready) {
    begin_[i] = ready;
    const std::int32_t other = partner_[i];
    if (other == kNone || begin_[other] < 0.0) return false;
    const double begin = std::max(ready, begin_[other]);
    const double end = begin + std::max(time_of(i), time_of(other));
    finish(other, begin, end);
    runnable_.push_back(lane_of(other));
    finish(i, begin, end);
    return true;
  }

  bool join(std::int32_t i, double ready) {
    Step& step = steps_[partner_[i]];
    begin_[i] = ready;
    step.begin = std::max(step.begin, ready);
    step.time = std::max(step.time, time_of(i));
    if (++step.arrived < programs_.size()) return false;
    for (const std::int32_t member : step.members) {
      finish(member, step.begin, step.begin + step.time);
      if (member != i) runnable_.push_back(lane_of(member));
    }
    return true;
  }

  bool sleep_until(std::int32_t lane, std::int32_t i) {
    next_waiter_[lane] = first_waiter_[i];
    first_waiter_[i] = lane;
    return false;
  }

  void finish(std::int32_t i, double begin, double end) {
    begin_[i] = begin;
    end_[i] = end;
    const std::int32_t lane = lane_of(i);
    free_at_[lane] = end;
    ++head_[lane];
    for (std::int32_t l = first_waiter_[i]; l != kNone; l = next_waiter_[l]) runnable_.push_back(l);
    first_waiter_[i] = kNone;
  }

  [[nodiscard]] double time_of(std::int32_t i) const {
    return duration_(programs_[stage_[i]], *instrs_[i]);
  }

  [[nodiscard]] Replay result() const {
    Replay out;
    for (std::size_t s = 0; s < programs_.size(); ++s) {
      const auto size = static_cast<std::int32_t>(programs_[s].instrs.size());
      auto& begin =
          out.begin.emplace_back(begin_.begin() + first_[s], begin_.begin() + first_[s] + size);
      const auto& end =
          out.end.emplace_back(end_.begin() + first_[s], end_.begin() + first_[s] + size);
      for (std::int32_t i = 0; i < size; ++i)
        if (end[i] < 0.0) begin[i] = kNever;
    }
    for (std::int32_t lane = 0; lane < lanes(); ++lane) {
      if (head_[lane] == queue_begin_[lane + 1]) continue;
      const std::int32_t stage = lane / kNumLanes;
      out.stuck.push_back(
          {stage, static_cast<Lane>(lane % kNumLanes), queue_[head_[lane]] - first_[stage]});
    }
    return out;
  }

  struct Step {
    std::vector<std::int32_t> members;
    std::size_t arrived = 0;
    double begin = 0.0, time = 0.0;
  };

  std::span<const Program> programs_;
  const Duration& duration_;
  Peers peers_;
  std::vector<std::int32_t> first_;  // [stage] number of its first instruction
  std::vector<const Instr*> instrs_;
  std::vector<std::int32_t> stage_;           // [instr]
  std::vector<std::int32_t> enqueued_after_;  // [instr] the latest HOST_WAIT before it
  std::vector<std::int32_t> partner_;         // [instr] RECORD, other side, or number of the step
  std::vector<double> begin_, end_;           // [instr]
  std::vector<Step> steps_;
  std::vector<std::int32_t> queue_, queue_begin_, head_;  // instructions by lane
  std::vector<double> free_at_;                           // [lane]
  std::vector<std::int32_t> first_waiter_;                // [instr] lanes asleep, as linked lists
  std::vector<std::int32_t> next_waiter_;                 // [lane]
  std::vector<std::int32_t> runnable_;                    // lanes to try
};

}  // namespace

Replay replay(std::span<const Program> programs, const Duration& duration, Peers peers) {
  return Replayer(programs, duration, peers).run();
}

}  // namespace tandem
