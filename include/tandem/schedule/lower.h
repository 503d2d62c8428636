// From a task order to a program: passes, each printable before and after.
//   add_p2p -> pair_overlap + expand_nodes -> bind_slots -> place_events
#pragma once

#include <vector>

#include "tandem/config/config.h"
#include "tandem/plan/partition.h"
#include "tandem/schedule/policy.h"
#include "tandem/schedule/program.h"

namespace tandem {

enum class ProgramKind { kTraining, kEvaluation };

struct LowerOptions {
  ModelConfig model;               // which layers are MoE
  Partition partition;
  PipelineShape shape;
  bool delay_wgrad = true;
  EventMode events = EventMode::kPerDirection;
};

LowerOptions lower_options(const RunConfig& config);   // config is resolved

// Tasks of one stage -> instructions with slots but without events and buffers.
// Within a pair the node order is the table in src/schedule/pair_table.h; surplus layers run alone,
// backward first.
Program expand(const LowerOptions& options, ProgramKind kind, int stage);

// Binds slots to buffers: a buffer is taken again once every access of its last slot is ordered
// before the new slot's first write by waits of the writer's own direction.
Program bind_slots(Program program, const LowerOptions& options);

// The only place that creates waits. After a node RECORD the event of its direction and lane
// (backward-weight nodes record nothing when they are delayed); before an instruction whose slots conflict with
// an earlier access on another lane that is not yet ordered, WAIT for its own direction's event of
// that lane. Hence every WAIT is necessary, and none crosses directions. Records nobody waits for
// are left out. In shared mode one event per lane serves both directions.
Program place_events(Program program, EventMode mode, bool delay_wgrad);

// All of the above.
Program build_program(const LowerOptions& options, ProgramKind kind, int stage);

}  // namespace tandem
