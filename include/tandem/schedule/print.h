// Pictures of programs for people: a lane chart for the terminal, an SVG of all stages.
#pragma once

#include <string>
#include <vector>

#include "tandem/schedule/policy.h"
#include "tandem/schedule/program.h"

namespace tandem {

// One row per lane, one column per time unit; `width` columns at most. Colour: ANSI, F and B apart.
std::string lane_chart(const Program& program, int width, bool colour);

// One line of tasks of a stage: "F0c0 F1c0 | F0c1&B0c1 ... | B3c0": warm-up | steady | cool-down.
std::string task_line(const std::vector<Task>& tasks);

}  // namespace tandem
