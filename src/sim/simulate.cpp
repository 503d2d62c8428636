#include "tandem/sim/simulate.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/schedule/replay.h"

namespace tandem {
namespace {

struct Interval {
  double begin, end;
};

double length(const std::vector<Interval>& intervals) {
  double sum = 0.0;
  for (const Interval& i : intervals) sum += i.end - i.begin;
  return sum;
}

// Both lists are sorted and free of overlap, as the spans of one lane are.
double shared_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0.0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

bool takes_time(Op op) {
  return op != Op::kRecord && op != Op::kWait;
}

double& cause(ComputeIdle& idle, Lane awaited) {
  if (awaited == Lane::kEp) return idle.alltoall;
  return awaited == Lane::kDp ? idle.grad_sync : idle.pipeline;
}

// Adds the microseconds that a stage's compute lane stands idle until the step ends. It stands
// while one of its WAITs lasts, or until the host enqueues the next instruction, which then waited
// for counts.
void add_idle(ComputeIdle& idle, const std::vector<Instr>& instrs, const std::vector<double>& begin,
              const std::vector<double>& end, double all_computed_us, double step_us) {
  double free_at = 0.0;
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    if (instrs[i].lane != Lane::kCompute) continue;
    idle.alltoall += begin[i] - free_at;
    if (instrs[i].op == Op::kWait) cause(idle, instrs[i].event.lane) += end[i] - begin[i];
    free_at = end[i];
  }
  const double computed = std::max(free_at, all_computed_us);
  idle.pipeline += computed - free_at;
  idle.grad_sync += step_us - computed;
}

double last_compute_end(const std::vector<Program>& by_stage, const Replay& run) {
  double last = 0.0;
  for (std::size_t s = 0; s < by_stage.size(); ++s)
    for (std::size_t i = 0; i < by_stage[s].instrs.size(); ++i)
      if (by_stage[s].instrs[i].lane == Lane::kCompute) last = std::max(last, run.end[s][i]);
  return last;
}

}  // namespace

SimResult simulate(const std::vector<Program>& by_stage, const CostModel& cost) {
  const Replay run = replay(by_stage, cost, Peers::kAll);
  TANDEM_CHECK(run.stuck.empty(), "the programs deadlock: stage {} stops at instruction {}",
               run.stuck[0].stage, run.stuck[0].instr);

  SimResult result;
  for (std::size_t s = 0; s < by_stage.size(); ++s) {
    std::vector<Interval> compute, ep;
    const std::vector<Instr>& instrs = by_stage[s].instrs;
    for (std::size_t i = 0; i < instrs.size(); ++i) {
      const double begin = run.begin[s][i], end = run.end[s][i];
      result.step_us = std::max(result.step_us, end);
      if (!takes_time(instrs[i].op) || end <= begin) continue;
      const Lane lane = instrs[i].lane;
      if (lane == Lane::kCompute) compute.push_back({begin, end});
      if (lane == Lane::kEp) ep.push_back({begin, end});
      result.spans.push_back({static_cast<int>(s), lane, static_cast<std::int32_t>(i), begin, end});
    }
    result.compute_us = std::max(result.compute_us, length(compute));
    result.ep_us += length(ep);
    result.ep_hidden_us += shared_length(ep, compute);
  }
  if (result.step_us <= 0.0) return result;
  const double all_computed_us = last_compute_end(by_stage, run);
  for (std::size_t s = 0; s < by_stage.size(); ++s)
    add_idle(result.idle, by_stage[s].instrs, run.begin[s], run.end[s], all_computed_us,
             result.step_us);
  const double of_all = static_cast<double>(by_stage.size()) * result.step_us;
  for (double* sum : {&result.idle.alltoall, &result.idle.pipeline, &result.idle.grad_sync})
    *sum /= of_all;
  return result;
}

}  // namespace tandem
