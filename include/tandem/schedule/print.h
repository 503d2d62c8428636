// Pictures of programs for people, in text. (sim/simulate.h draws all stages as SVG.)
#pragma once

#include <string>
#include <vector>

#include "tandem/schedule/policy.h"
#include "tandem/schedule/program.h"
#include "tandem/schedule/replay.h"

namespace tandem {

// Which part of a program a chart shows, in its units of time.
struct UnitRange {
  int from = 0;
  int count = 0;  // 0: to the end
};

// A program drawn lane by lane. A unit is one node or transfer, and peers are never late.
class LaneChart {
 public:
  explicit LaneChart(const Program& program);  // which outlives it; replays it
  explicit LaneChart(Program&&) = delete;

  [[nodiscard]] int units() const { return units_; }
  // Where backward work begins; 0 if there is none.
  [[nodiscard]] int first_backward() const { return first_backward_; }

  // One row per lane, one cell (four columns) per unit, folded to `width` columns. Very long
  // programs show several units per cell. Cells hold the node's letter (upper case forward, lower
  // case backward, ' after it a weight gradient) and the micro-batch; a legend explains those that
  // occur. Colour: ANSI, F and B apart.
  [[nodiscard]] std::string text(int width, bool colour, UnitRange range = {}) const;

 private:
  const Program& program_;
  const Replay run_;
  int units_ = 0, first_backward_ = 0;
};

// One line of tasks of a stage: "F0c0 F1c0 | F0c1&B0c1 ... | B3c0": warm-up | steady | cool-down.
std::string task_line(const std::vector<Task>& tasks);

}  // namespace tandem
