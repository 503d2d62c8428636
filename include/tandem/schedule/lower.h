// From a task order to a program: passes, each printable before and after.
//   expand (pairs, nodes, transfers) -> bind_slots -> place_events
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

// Tasks of one stage -> instructions with slots but without events and buffers. Within a pair the
// node order is the table in src/schedule/pair_table.h; surplus layers run alone. Of each direction
// one RECV is under way: it is enqueued once the one before it has been consumed.
Program expand(const LowerOptions& options, ProgramKind kind, int stage);

// Binds slots to buffers of their kind. A buffer is taken again once its last slot is dead and all
// accesses of it are ordered before the new slot's writer: by their lane, by waits the writer makes
// anyway, or by one more wait of the writer's own direction where that is known to be harmless: a
// RECV waits for compute, the writer of a slot that is sent waits for the SEND before it. The
// number of buffers does not grow with the number of micro-batches.
Program bind_slots(Program program, const LowerOptions& options);

// The only place that creates waits. Before an instruction whose buffers conflict with an earlier
// access on another lane that is not yet ordered, WAIT for its own direction's event of that lane;
// RECORD an event behind the work that such a wait, or a HOST_WAIT, captures. Every WAIT is
// necessary, none crosses directions. A delayed backward-weight node records nothing, unless the
// gradients of its chunk are summed next. In shared mode one event per lane serves both directions.
// Error(kInternal) where only another direction's event could give the order.
Program place_events(Program program, EventMode mode, bool delay_wgrad);

// All of the above.
Program build_program(const LowerOptions& options, ProgramKind kind, int stage);
// The same for every stage, by stage: what the checker and the simulator take.
std::vector<Program> build_programs(const LowerOptions& options, ProgramKind kind);

}  // namespace tandem
