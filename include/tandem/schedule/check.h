// The checker proves a family of programs, one per stage.
#pragma once

#include <string>
#include <vector>

#include "tandem/schedule/program.h"

namespace tandem {

struct Finding {
  enum class Kind {
    kRace,            // two conflicting accesses to a buffer or slot are not ordered
    kUninitialised,   // read before written, or after the buffer went to another slot
    kOverwritten,     // a slot is written afresh after it was written: what it held is lost
    kUnmatched,       // send and receive lists of two stages differ
    kCollective,      // collectives of a group in different order on its ranks
    kDeadlock,        // no lane of any rank can advance, under rendezvous semantics
    kMissingCounts,   // a node that needs token counts without HOST_WAIT before it
    kBadEvent,        // waits for an event nobody recorded
  };
  Kind kind;
  int stage;
  std::string what;   // one line naming the instructions
};

struct CheckReport {
  std::vector<Finding> findings;     // at most max_findings, then counted only
  long total_findings = 0;
  long instrs = 0, waits = 0, records = 0;
  long cross_direction_waits = 0;    // the awaited record belongs to a node of the other direction
  [[nodiscard]] bool ok() const { return total_findings == 0; }
};

// Happens-before by vector clocks over the lanes of a stage (the host is one), lifetimes by buffer,
// matching by name, deadlock by running all stages with rendezvous sends and collectives.
CheckReport check_programs(const std::vector<Program>& by_stage, int max_findings = 20);

}  // namespace tandem
