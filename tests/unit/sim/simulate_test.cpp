#include "tandem/sim/simulate.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../schedule/hand_program.h"
#include "../schedule/sample_programs.h"
#include "tandem/base/error.h"
#include "tandem/sim/cost_model.h"

namespace tandem {
namespace {

constexpr Dir F = Dir::kFwd, B = Dir::kBwd;

// Compute nodes 10, all-to-alls 4, transfers 1, the end of the step 2 and 3.
double simple_cost(const Program&, const Instr& instr) {
  switch (instr.op) {
    case Op::kRun:
      return instr.lane == Lane::kEp ? 4.0 : 10.0;
    case Op::kGradSync:
      return 2.0;
    case Op::kOptStep:
      return 3.0;
    default:
      return 1.0;
  }
}

Span span_of(const SimResult& result, int stage, std::int32_t instr) {
  for (const Span& span : result.spans)
    if (span.stage == stage && span.instr == instr) return span;
  FAIL("no span");
  return {};
}

TEST_CASE("two stages, by hand") {
  // Stage 0: compute [0, 10), send [10, 11). Stage 1: receive [10, 11), compute [11, 21), and back.
  HandProgram first(0, 2), second(1, 2);
  first.run(NodeKind::kMlp, F, 0, {}).record(Lane::kCompute, F);
  first.wait(Lane::kSendFwd, F, Lane::kCompute).send(F, 0, 1);
  first.recv(B, 0, 1).record(Lane::kRecvBwd, B).wait(Lane::kCompute, B, Lane::kRecvBwd);
  first.run(NodeKind::kMlp, B, 0, {}).record(Lane::kCompute, B);
  first.wait(Lane::kDp, B, Lane::kCompute).step_end();
  second.recv(F, 0, 0).record(Lane::kRecvFwd, F).wait(Lane::kCompute, F, Lane::kRecvFwd);
  second.run(NodeKind::kMlp, F, 0, {}).record(Lane::kCompute, F);
  second.wait(Lane::kSendBwd, F, Lane::kCompute).send(B, 0, 0);
  second.step_end();
  const SimResult result = simulate({first.program(), second.program()}, simple_cost);

  const Span sent = span_of(result, 0, 3), received = span_of(result, 1, 0);
  CHECK(sent.begin_us == 10.0);
  CHECK(sent.end_us == 11.0);
  CHECK(received.begin_us == 10.0);  // not 0: it waits for the sender
  CHECK(received.end_us == 11.0);
  CHECK(span_of(result, 1, 3).begin_us == 11.0);
  CHECK(span_of(result, 0, 7).begin_us == 22.0);
  CHECK(span_of(result, 0, 7).end_us == 32.0);
  // GRAD_SYNC [32, 34) on stage 0, [0, 2) on stage 1; OPT_STEP joins both: [34, 37).
  const auto last = static_cast<std::int32_t>(second.program().instrs.size()) - 1;
  CHECK(span_of(result, 1, last - 1).begin_us == 0.0);
  CHECK(span_of(result, 1, last).begin_us == 34.0);
  CHECK(result.step_us == 37.0);
  CHECK(result.compute_us == 20.0);
  // Stage 0 stands [10, 22) for stage 1, stage 1 [0, 11) and, while stage 0 computes, [21, 32);
  // then both [32, 37) for the end of the step.
  CHECK(result.idle.total() == Approx(1.0 - 15.0 / 37.0));
  CHECK(result.idle.pipeline == Approx((12.0 + 11.0 + 11.0) / 2.0 / 37.0));
  CHECK(result.idle.grad_sync == Approx(5.0 / 37.0));
  CHECK(result.idle.alltoall == 0.0);
  CHECK(result.ep_us == 0.0);
}

TEST_CASE("the share of the all-to-all under compute of its own stage") {
  // compute [0, 10) [10, 20) [24, 34); ep [10, 14) hidden, [20, 24) exposed.
  HandProgram p;
  p.run(NodeKind::kMlp, F, 0, {}).record(Lane::kCompute, F);
  p.wait(Lane::kEp, F, Lane::kCompute).run(NodeKind::kCounts, F, 0, {});
  p.run(NodeKind::kMlp, F, 0, {}).record(Lane::kCompute, F);
  p.wait(Lane::kEp, F, Lane::kCompute).run(NodeKind::kCounts, F, 0, {}).record(Lane::kEp, F);
  p.wait(Lane::kCompute, F, Lane::kEp).run(NodeKind::kMlp, F, 0, {});
  const SimResult result = simulate({p.program()}, simple_cost);
  CHECK(result.ep_us == 8.0);
  CHECK(result.ep_hidden_us == 4.0);
  CHECK(result.step_us == 34.0);
  CHECK(result.idle.alltoall == Approx(4.0 / 34.0));
  CHECK(result.idle.total() == Approx(4.0 / 34.0));
  CHECK(summary_text(result) ==
        "step 34 \u00b5s, compute idle 11.8 % (all-to-all 11.8), expert all-to-all 50.0 % hidden "
        "under compute");
}

TEST_CASE("nothing is enqueued while the host waits") {
  HandProgram p;
  p.run(NodeKind::kCounts, F, 0, {}).record(Lane::kEp, F);  // [0, 4)
  p.host_wait(0, F, Lane::kEp);
  p.run(NodeKind::kMlp, F, 0, {});  // needs nothing, yet begins at 4
  const SimResult result = simulate({p.program()}, simple_cost);
  CHECK(span_of(result, 0, 3).begin_us == 4.0);
  const Span host = span_of(result, 0, 2);
  CHECK(host.begin_us == 0.0);
  CHECK(host.end_us == 4.0);
  CHECK(result.idle.alltoall == Approx(4.0 / 14.0));
}

TEST_CASE("programs that deadlock are refused") {
  HandProgram p(0, 2), q(1, 2);
  p.send(F, 0, 1);
  CHECK_THROWS_AS(simulate({p.program(), q.program()}, simple_cost), Error);
}

// Mean over the stages.
double busy_share(const SimResult& result, Lane lane, int stages) {
  double busy = 0.0;
  for (const Span& span : result.spans)
    if (span.lane == lane) busy += span.end_us - span.begin_us;
  return busy / (result.step_us * stages);
}

// All-to-alls as long as the compute beside them: what overlap is for.
double heavy_alltoall(const Program&, const Instr& instr) {
  if (instr.op != Op::kRun) return 1.0;
  if (instr.node == NodeKind::kCounts) return 1.0;
  return instr.node == NodeKind::kAggregate ? 2.0 : 20.0;
}

TEST_CASE("pairing hides all-to-alls, and one shared event hides fewer") {
  const auto run = [](Sample sample, bool overlap, EventMode events) {
    sample.overlap = overlap;
    sample.events = events;
    return simulate(build(sample), heavy_alltoall);
  };
  const std::vector<Sample> samples = {
      {.pp = 1, .vpp = 1, .microbatches = 8, .layers = {4}},
      {.pp = 2, .vpp = 2, .microbatches = 8, .layers = {2, 2, 2, 2}},
      {.pp = 2, .vpp = 1, .microbatches = 16, .layers = {4, 4}},
      {.pp = 4, .vpp = 2, .microbatches = 16, .layers = {1, 1, 1, 1, 1, 1, 1, 1}}};
  for (const Sample& sample : samples) {
    INFO(sample.name());
    const SimResult plain = run(sample, false, EventMode::kPerDirection);
    const SimResult paired = run(sample, true, EventMode::kPerDirection);
    const SimResult shared = run(sample, true, EventMode::kShared);
    INFO(plain.step_us << " " << paired.step_us << " " << shared.step_us);
    CHECK(paired.step_us < 0.9 * plain.step_us);
    CHECK(shared.step_us > paired.step_us);
    CHECK(paired.ep_hidden_us / paired.ep_us > 0.5);
    CHECK(paired.ep_hidden_us / paired.ep_us > shared.ep_hidden_us / shared.ep_us);
    CHECK(paired.ep_us == Approx(plain.ep_us));  // the same work
    for (const SimResult* result : {&plain, &paired, &shared}) {
      // Every idle microsecond has one cause.
      CHECK(result->idle.total() == Approx(1.0 - busy_share(*result, Lane::kCompute, sample.pp)));
      CHECK((sample.pp > 1) == (result->idle.pipeline > 0.0));
    }
    CHECK(paired.idle.alltoall < plain.idle.alltoall);
  }
}

TEST_CASE("spans of a lane follow one another, and nobody computes before the activations came") {
  const std::vector<Program> programs =
      build({.pp = 2, .vpp = 2, .microbatches = 4, .layers = {1, 1, 1, 1}});
  const SimResult result = simulate(programs, heavy_alltoall);
  double free_at[2][kNumLanes] = {};
  for (const Span& span : result.spans) {
    double& at = free_at[span.stage][static_cast<int>(span.lane)];
    CHECK(span.begin_us >= at);
    at = span.end_us;
  }
  double first_recv = -1.0, first_compute = -1.0;
  for (const Span& span : result.spans) {
    if (span.stage != 1) continue;
    if (span.lane == Lane::kRecvFwd && first_recv < 0.0) first_recv = span.end_us;
    if (span.lane == Lane::kCompute && first_compute < 0.0) first_compute = span.begin_us;
  }
  CHECK(first_compute >= first_recv);
  CHECK(first_recv > 0.0);
}

RunConfig small_config() {
  RunConfig config;
  config.model.layers = 2;
  config.parallel.pp = 1;
  config.parallel.dp = 2;
  config.parallel.ep = 2;
  config.parallel.microbatch_group = 1;
  config.train.seq_len = 100;
  config.train.micro_batch = 2;
  config.train.global_batch = 8;
  return config;
}

TEST_CASE("node times follow from FLOPs, bytes and the machine") {
  const RunConfig config = small_config();
  const MachineModel machine{.tflops = 1.0, .gb_per_s = 2.0, .latency_us = 5.0};
  const CostModel cost = cost_model(config, machine);
  const std::vector<Program> programs = build({.microbatches = 4, .layers = {2}});
  const auto time_of = [&](Op op, NodeKind node, Phase phase) {
    for (const Instr& instr : programs[0].instrs)
      if (instr.op == op && (op != Op::kRun || (instr.node == node && instr.phase == phase)))
        return cost(programs[0], instr);
    FAIL("no such instruction");
    return 0.0;
  };
  // 200 tokens, top-2: 400 rows of 128 fp32; half of them leave the rank.
  const double row_bytes = 128 * 4, moved = 400 * 0.5;
  CHECK(time_of(Op::kRun, NodeKind::kDispatch, Phase::kFwd) ==
        Approx(5.0 + moved * (row_bytes + 4) / 2e3));
  CHECK(time_of(Op::kRun, NodeKind::kCombine, Phase::kBwdInput) ==
        Approx(5.0 + moved * row_bytes / 2e3));
  // Gate, up and down projection, 2 FLOPs per multiply-add.
  const double experts = 2.0 * 400 * 3 * 128 * 256 / 1e6;
  CHECK(time_of(Op::kRun, NodeKind::kExperts, Phase::kFwd) == Approx(5.0 + experts));
  CHECK(time_of(Op::kRun, NodeKind::kExperts, Phase::kBwdWeight) == Approx(5.0 + experts));
  CHECK(time_of(Op::kRun, NodeKind::kAggregate, Phase::kFwd) == 5.0);
  CHECK(time_of(Op::kGradSync, {}, {}) > 5.0);
}

TEST_CASE("the picture scales, names its stages and escapes its title") {
  const std::vector<Program> programs =
      build({.pp = 2, .vpp = 2, .microbatches = 4, .layers = {1, 1, 1, 1}});
  const SimResult result = simulate(programs, heavy_alltoall);
  const std::string svg = to_svg(programs, result, "a < b & \"c\"", "a machine");
  CHECK(svg.find("viewBox") != std::string::npos);
  CHECK(svg.find("a &lt; b &amp; &quot;c&quot;") != std::string::npos);
  CHECK(svg.find("a < b") == std::string::npos);
  for (const char* word : {">stage 0<", ">stage 1<", ">compute<", ">ep<", ">send_fwd<"})
    CHECK(svg.find(word) != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find(">-0 ") == std::string::npos);
  CHECK(svg.find("experts bwd_weight") != std::string::npos);
  // Tags are closed: as many <text as </text>.
  const auto count = [&](const std::string& word) {
    long n = 0;
    for (std::size_t at = svg.find(word); at != std::string::npos; at = svg.find(word, at + 1)) ++n;
    return n;
  };
  CHECK(count("<text") == count("</text>"));
  CHECK(count("<title>") == count("</title></rect>"));
}

double attribute(const std::string& element, const char* name) {
  const std::size_t at = element.find(std::string(" ") + name + "=\"");
  REQUIRE(at != std::string::npos);
  return std::stod(element.substr(element.find('"', at) + 1));
}

// Every element `name` of a picture.
std::vector<std::string> elements(const std::string& svg, const std::string& name) {
  std::vector<std::string> all;
  for (std::size_t at = svg.find("<" + name + " "); at != std::string::npos;
       at = svg.find("<" + name + " ", at + 1))
    all.push_back(svg.substr(at, svg.find('<', at + 1) - at));
  return all;
}

// The share of the plot that the boxes cover on the rows of a main lane.
double drawn_share(const std::string& svg, const std::string& lane) {
  constexpr double kPlot = 1412, kRow = 24;
  double area = 0;
  int rows = 0;
  for (const std::string& text : elements(svg, "text")) {
    if (text.find(">" + lane) == std::string::npos) continue;
    const double middle = attribute(text, "y") - 4;
    ++rows;
    for (const std::string& rect : elements(svg, "rect")) {
      if (rect.find("data-n") == std::string::npos) continue;
      const double y = attribute(rect, "y"), height = attribute(rect, "height");
      if (std::abs(y + height / 2 - middle) <= kRow / 2) area += attribute(rect, "width") * height;
    }
  }
  return area / (rows * kPlot * kRow);
}

TEST_CASE("the area drawn is the time that lanes are busy, however short the nodes") {
  const Sample samples[] = {
      {.pp = 2, .vpp = 2, .microbatches = 4, .layers = {1, 1, 1, 1}},
      {.pp = 1, .vpp = 1, .microbatches = 40, .layers = {4}, .overlap = false},
      {.pp = 1, .vpp = 1, .microbatches = 300, .layers = {8}, .overlap = false},
      {.pp = 2, .vpp = 1, .microbatches = 300, .layers = {8, 8}},
  };
  for (const Sample& sample : samples) {
    INFO(sample.name());
    const std::vector<Program> programs = build(sample);
    const SimResult result = simulate(programs, heavy_alltoall);
    const std::string svg = to_svg(programs, result, "t", "");
    CHECK(drawn_share(svg, "compute") == Approx(1.0 - result.idle.total()).margin(0.005));
    CHECK(drawn_share(svg, "ep") == Approx(busy_share(result, Lane::kEp, sample.pp)).margin(0.005));
    // Every node is in some rectangle, and where they share one the picture says so.
    std::size_t nodes = 0;
    for (const std::string& rect : elements(svg, "rect"))
      if (rect.find("data-n") != std::string::npos)
        nodes += static_cast<std::size_t>(attribute(rect, "data-n"));
    CHECK(nodes == result.spans.size());
    CHECK((svg.find("share a column") != std::string::npos) == (sample.microbatches > 4));
  }
}

TEST_CASE("the picture of a very long step stays small") {
  HandProgram p;
  for (int i = 0; i < 200000; ++i) p.run(NodeKind::kMlp, i % 7 == 0 ? B : F, i, {});
  CHECK(to_svg({p.program()}, simulate({p.program()}, simple_cost), "long", "").size() < 1000000);
}

TEST_CASE("a picture of nothing is still a picture") {
  const std::string svg = to_svg({HandProgram().program()}, SimResult{}, "empty", "");
  CHECK(svg.find("</svg>") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
}

}  // namespace
}  // namespace tandem
