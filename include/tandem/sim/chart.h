// A picture of lanes over time as SVG: bands (a stage, a rank) of rows (lanes) of boxes. Modelled
// schedules and measured traces are drawn alike.
#pragma once

#include <string>
#include <vector>

#include "tandem/schedule/program.h"

namespace tandem {

// What a box looks like: its kind is a shade of its direction's hue, and backward is hatched.
enum class Tone {
  kAttention, kExperts, kMlp, kEnds, kAggregate, kWeight, kAllToAll, kCounts, kTransfer,
  kGradients, kHostWait
};
Tone tone_of(Op op, NodeKind node, Phase phase);  // node and phase count for RUN only

struct ChartBox {
  double begin_us = 0, end_us = 0;
  Tone tone = Tone::kEnds;
  Dir dir = Dir::kFwd;
  std::vector<std::string> labels;  // the first that fits is written
  std::string tooltip;
};

struct ChartRow {
  std::string label;
  bool main = false;            // high enough for text
  std::vector<ChartBox> boxes;  // in order of time
};

struct ChartBand {
  std::string label;
  std::vector<ChartRow> rows;  // those without a box to show are left out
};

struct Chart {
  std::string title, summary;  // left and right of the first line
  std::string hint;            // what the texts in boxes mean
  double begin_us = 0, end_us = 0;  // what is shown; boxes beyond are cut
  double main_row = 24;             // height of a main row
  std::vector<ChartBand> bands;
};

// True to time: on every row the area drawn is the time its lane is busy. Neighbours too narrow to tell
// apart share a column, in which each look is as high as its share of the column's time; data-n says of
// how many boxes a rectangle is made. Boxes of a row do not overlap.
std::string to_svg(const Chart& chart);

}  // namespace tandem
