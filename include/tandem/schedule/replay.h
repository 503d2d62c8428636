// Runs the programs of all stages on a model of the machine: lanes are FIFOs, the host enqueues in
// program order and stops at HOST_WAIT, a SEND and its RECV take place together (rendezvous), and
// OPT_STEP joins all stages. Nodes of the ep lane and GRAD_SYNC join ranks that run the same
// program, so within this model they are ordinary work.
//
// The outcome does not depend on the order in which lanes are tried: every instruction starts at
// the latest of its predecessors' ends. The checker asks only whether all of them run; the
// simulator and the charts also read the times.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tandem/schedule/program.h"

namespace tandem {

// Time of a RUN, SEND, RECV, GRAD_SYNC or OPT_STEP; the unit is the caller's.
using Duration = std::function<double(const Program&, const Instr&)>;

enum class Peers {
  kAll,     // `programs` holds every stage, in order
  kAbsent,  // one stage alone: as if its peers were never late
};

struct StuckLane {
  int stage = 0;  // index into the programs
  Lane lane = Lane::kCompute;
  std::int32_t instr = 0;  // index into that program: the lane's first instruction that never ran
};

struct Replay {
  std::vector<std::vector<double>> begin, end;  // [stage][instr]; -1 where it never ran
  std::vector<StuckLane> stuck;                 // empty: everything ran
  // A transfer or a joined step begins when its last participant arrives. A WAIT or HOST_WAIT
  // begins when its lane reaches it and ends when the event is reached.
};

// Linear in the number of instructions. Peers outside [0, programs) are never met.
Replay replay(std::span<const Program> programs, const Duration& duration, Peers peers);

}  // namespace tandem
