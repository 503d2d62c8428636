// Libraries load kernels, plan and allocate at the first use of a shape, and while they do so the
// GPU may have to become idle. In the middle of a step it cannot: a lane may be waiting for a rank
// that waits for this one. So every node body has its first use here.
#pragma once

#include "tandem/runtime/executor.h"
#include "tandem/schedule/program.h"

namespace tandem {

// Runs each kind of compute node of the program once, alone, on zeros in memory of its own, and
// waits for it; one that starts a slot afresh and one that adds to it are two kinds. Parameters
// stay; gradients of their chunk hold nothing of use afterwards (a step begins by clearing them, or
// stores them). Call while every lane is idle.
void rehearse(const RankState& rank, const Program& program);

}  // namespace tandem
