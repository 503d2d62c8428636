// Pictures of programs for people, in text. (sim/simulate.h draws all stages as SVG.)
#pragma once

#include <string>
#include <vector>

#include "tandem/schedule/policy.h"
#include "tandem/schedule/program.h"

namespace tandem {

// Which part of a program a chart shows, in its units of time.
struct UnitRange {
  int from = 0;
  int count = 0;  // 0: to the end
};

// One row per lane, one cell (three columns) per time unit, folded to `width` columns; a unit is
// one node or transfer, and peers are never late. Very long programs show several units per cell.
// Cells hold the node's letter (upper case forward, lower case backward, ' after it a weight
// gradient) and the micro-batch; a legend explains those that occur. Colour: ANSI, F and B apart.
std::string lane_chart(const Program& program, int width, bool colour, UnitRange range = {});

// The units of that chart.
struct ChartLength {
  int units;
  int first_backward;  // where backward work begins; 0 if there is none
};
ChartLength chart_length(const Program& program);

// One line of tasks of a stage: "F0c0 F1c0 | F0c1&B0c1 ... | B3c0": warm-up | steady | cool-down.
std::string task_line(const std::vector<Task>& tasks);

}  // namespace tandem
