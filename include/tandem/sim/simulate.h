// Discrete-event run of all stages' programs with modelled node times: step time, idle compute and
// what it waits for, hidden share of the expert all-to-all, and the spans from which pictures are drawn.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/schedule/program.h"

namespace tandem {

// Time of an instruction in microseconds (RUN, SEND, RECV, GRAD_SYNC, OPT_STEP).
using CostModel = std::function<double(const Program&, const Instr&)>;

struct Span {
  int stage;
  Lane lane;
  std::int32_t instr;             // index into that stage's program
  double begin_us, end_us;
};

// What the compute lanes wait for, as shares of the step, means over the stages.
struct ComputeIdle {
  double alltoall = 0.0;   // expert all-to-alls, and the host for the token counts that size them
  double pipeline = 0.0;   // transfers, and at its end until every stage has computed
  double grad_sync = 0.0;  // after that: gradient sums and the optimizer step
  [[nodiscard]] double total() const { return alltoall + pipeline + grad_sync; }
};

struct SimResult {
  double step_us = 0.0;
  double compute_us = 0.0;        // busiest stage's compute lane
  double ep_us = 0.0;             // busy time of the ep lanes, all stages
  double ep_hidden_us = 0.0;      // part of it under compute of the same stage
  ComputeIdle idle;               // total: 1 - mean compute busy / step
  std::vector<Span> spans;
  [[nodiscard]] double hidden_share() const { return ep_us > 0.0 ? ep_hidden_us / ep_us : 0.0; }
};

// Programs must have passed the checker. Sends are rendezvous.
SimResult simulate(const std::vector<Program>& by_stage, const CostModel& cost);

// "step 12.3 ms, compute idle 8.1 % (all-to-all 5.0, pipeline 3.1), expert all-to-all 94.0 % hidden
// under compute"; causes below 0.05 % are left out.
std::string summary_text(const SimResult& result);

// Picture of a modelled run, all stages, one row per lane; micro-batches numbered, F and B in two hues.
// `about` says which machine was modelled.
std::string to_svg(const std::vector<Program>& by_stage, const SimResult& result,
                   const std::string& title, const std::string& about);

}  // namespace tandem
