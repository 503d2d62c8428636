// Discrete-event run of all stages' programs with modelled node times: step time, bubble, hidden
// share of the expert all-to-all, and the spans from which pictures are drawn.
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

struct SimResult {
  double step_us = 0.0;
  double compute_us = 0.0;        // busiest stage's compute lane
  double ep_us = 0.0;             // busy time of the ep lanes, all stages
  double ep_hidden_us = 0.0;      // part of it under compute of the same stage
  double bubble = 0.0;            // 1 - mean compute busy / step
  std::vector<Span> spans;
};

// Programs must have passed the checker. Sends are rendezvous.
SimResult simulate(const std::vector<Program>& by_stage, const CostModel& cost);

// "step 12.3 ms, bubble 8.1 %, expert all-to-all 94.0 % hidden under compute". One stage has no bubble
// to speak of: its compute lane is idle for other reasons.
std::string summary_text(const SimResult& result, int stages);

// Picture of a modelled run, all stages, one row per lane; micro-batches numbered, F and B in two hues.
std::string to_svg(const std::vector<Program>& by_stage, const SimResult& result,
                   const std::string& title);

}  // namespace tandem
