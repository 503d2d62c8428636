#include "tandem/schedule/print.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>

#include "hand_program.h"
#include "sample_programs.h"

namespace tandem {
namespace {

constexpr Dir F = Dir::kFwd, B = Dir::kBwd;

std::size_t longest_line(const std::string& text) {
  std::istringstream in(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(in, line);) longest = std::max(longest, line.size());
  return longest;
}

std::string without_colour(const std::string& text) {
  std::string out;
  bool escape = false;
  for (const char c : text) {
    if (c == '\033') escape = true;
    if (!escape) out += c;
    if (c == 'm') escape = false;
  }
  return out;
}

HandProgram small() {
  HandProgram p(0, 2);
  p.run(NodeKind::kAttention, F, 0, {}).record(Lane::kCompute, F);
  p.wait(Lane::kEp, F, Lane::kCompute).run(NodeKind::kCounts, F, 0, {});
  p.run(NodeKind::kExperts, B, 13, {});
  p.send(F, 0, 1);
  return p;
}

TEST_CASE("task lines show warm-up, steady part and cool-down") {
  using T = std::vector<Task>;
  CHECK(task_line(T{{F, 0, 0}, {F, 0, 1}, {F, 1, 0, true}, {B, 1, 0}, {B, 0, 0}, {B, 0, 1}}) ==
        "F0c0 F1c0 | F0c1&B0c1 | B0c0 B1c0");
  CHECK(task_line(T{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {F, 0, 2}, {B, 0, 1}, {B, 0, 2}}) ==
        "F0c0 | F1c0 B0c0 F2c0 B1c0 | B2c0");
  CHECK(task_line(T{{F, 0, 0}, {F, 0, 1}}) == "F0c0 F1c0");
  CHECK(task_line({}) == "");
}

TEST_CASE("a lane chart has a row per lane in use and a cell per unit") {
  CHECK(LaneChart(small().program()).text(60, false) ==
        "stage 0 of 2, 1 micro-batches, 2 units\n"
        "\n"
        "         0\n"
        "compute  A0  e3\n"
        "ep        .  N0\n"
        "send_fwd >0   .\n"
        "\n"
        "A attention  N counts  E experts  > send  < receive\n"
        "UPPER CASE forward  lower case backward  digit: micro-batch mod 10\n"
        "chunks and layers: --text, or a pointer on a box of --svg\n");
}

TEST_CASE("cells of a lane chart stand apart, also where weight gradients follow one another") {
  const auto programs = build({.pp = 1, .vpp = 1, .microbatches = 2, .layers = {2}});
  const std::string chart = LaneChart(programs[0]).text(200, false);
  CHECK(chart.find("a0' ") != std::string::npos);
  CHECK(chart.find("a0'g") == std::string::npos);
  std::istringstream lines(chart);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("compute", 0) != 0) continue;
    for (std::size_t cell = 9; cell + 3 < line.size(); cell += 4) CHECK(line[cell + 3] == ' ');
  }
}

TEST_CASE("a lane chart shows the units it is asked for") {
  HandProgram p;
  for (int i = 0; i < 6; ++i) p.run(NodeKind::kMlp, i < 4 ? F : B, i, {});
  const LaneChart chart(p.program());
  CHECK(chart.units() == 6);
  CHECK(chart.first_backward() == 4);
  const std::string part = chart.text(100, false, {.from = 2, .count = 3});
  CHECK(part.find("6 units, here 2 to 5\n") != std::string::npos);
  CHECK(part.find("         2\ncompute  M2  M3  m4\n") != std::string::npos);
  const std::string rest = chart.text(100, false, {.from = 4});
  CHECK(rest.find("         4\ncompute  m4  m5\n") != std::string::npos);
}

TEST_CASE("colour changes nothing but the colour") {
  const std::string plain = LaneChart(small().program()).text(60, false);
  const std::string colour = LaneChart(small().program()).text(60, true);
  CHECK(colour.find("\033[") != std::string::npos);
  const std::string stripped = without_colour(colour);
  CHECK(stripped.substr(0, stripped.find("\n\nA")) == plain.substr(0, plain.find("\n\nA")));
}

TEST_CASE("long programs are folded to the width, very long ones scaled") {
  HandProgram p;
  for (int i = 0; i < 100; ++i) p.run(NodeKind::kMlp, F, i, {});
  const std::string folded = LaneChart(p.program()).text(100, false);
  CHECK(longest_line(folded) <= 100);
  CHECK(folded.find("in each cell") == std::string::npos);
  for (int i = 0; i < 5000; ++i) p.run(NodeKind::kMlp, F, i, {});
  const std::string scaled = LaneChart(p.program()).text(100, false);
  CHECK(longest_line(scaled) <= 100);
  CHECK(scaled.find("in each cell") != std::string::npos);
  CHECK(std::count(scaled.begin(), scaled.end(), '\n') < 50);
}

}  // namespace
}  // namespace tandem
