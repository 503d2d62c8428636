// Predicted bytes of one rank with everything a program needs.
#pragma once

#include "tandem/config/config.h"
#include "tandem/model/memory.h"
#include "tandem/schedule/program.h"

namespace tandem {

// static_memory and the program's buffers: it says how many of each kind are live at once, a
// balanced router how large each is.
MemoryPlan rank_memory(const ParamTable& table, const Program& program, const RunConfig& config);

}  // namespace tandem
