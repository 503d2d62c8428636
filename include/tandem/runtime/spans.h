// How instructions look to people: as spans of a trace and as ranges of a profiler.
#pragma once

#include <string>
#include <vector>

#include "tandem/device/profiler.h"
#include "tandem/runtime/timeline.h"
#include "tandem/schedule/program.h"
#include "tandem/trace/trace.h"

namespace tandem {

std::string span_name(const Instr& instr);   // "dispatch_fwd", "SEND"
std::string range_name(const Instr& instr);  // "dispatch_fwd L3 mb2"

std::vector<TraceSpan> to_spans(const std::vector<TimedInstr>& timed, const Program& program);

// One category per lane and direction, forward bluish and backward reddish.
std::vector<RangeCategory> range_categories();
int range_category(const Instr& instr);  // index into them

}  // namespace tandem
