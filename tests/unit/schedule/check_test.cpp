#include "tandem/schedule/check.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "hand_program.h"
#include "sample_programs.h"

namespace tandem {
namespace {

using enum SlotKind;
using enum Access;
constexpr Dir F = Dir::kFwd, B = Dir::kBwd;

bool has(const CheckReport& report, Finding::Kind kind) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const Finding& finding) { return finding.kind == kind; });
}

std::string texts(const CheckReport& report) {
  std::string out;
  for (const Finding& finding : report.findings) out += finding.what + "\n";
  return out;
}

// Attention writes `permuted` on lane compute, dispatch reads it on lane ep.
struct Handover {
  HandProgram p;
  std::int32_t permuted = p.slot(kPermuted, 0, 0);
  void produce() { p.run(NodeKind::kAttention, F, 0, {{permuted, kWrite}}); }
  // counts, since unlike dispatch it needs no HOST_WAIT
  void consume() { p.run(NodeKind::kCounts, F, 0, {{permuted, kRead}}); }
};

TEST_CASE("an access on another lane needs a record and a wait") {
  Handover sound, no_wait, late_record;
  sound.produce();
  sound.p.record(Lane::kCompute, F).wait(Lane::kEp, F, Lane::kCompute);
  sound.consume();
  CHECK(texts(check_programs({sound.p.program()})).empty());

  no_wait.produce();
  no_wait.p.record(Lane::kCompute, F);
  no_wait.consume();
  const CheckReport race = check_programs({no_wait.p.program()});
  CHECK(has(race, Finding::Kind::kRace));
  CHECK(race.total_findings == 1);
  // The text names both instructions and the slot.
  CHECK(race.findings[0].what.find("counts") != std::string::npos);
  CHECK(race.findings[0].what.find("attention") != std::string::npos);
  CHECK(race.findings[0].what.find("permuted.c0.m0.l0") != std::string::npos);

  // The event was recorded, but before the write.
  late_record.p.record(Lane::kCompute, F);
  late_record.produce();
  late_record.p.wait(Lane::kEp, F, Lane::kCompute);
  late_record.consume();
  CHECK(has(check_programs({late_record.p.program()}), Finding::Kind::kRace));
}

TEST_CASE("reads do not conflict with reads, writes do with reads") {
  HandProgram p;
  const std::int32_t x = p.slot(kPermuted, 0, 0);
  p.run(NodeKind::kAttention, F, 0, {{x, kWrite}}).record(Lane::kCompute, F);
  p.run(NodeKind::kAttention, F, 0, {{x, kRead}});  // not covered by the record
  p.wait(Lane::kEp, F, Lane::kCompute);
  HandProgram reader = p, writer = p, adder = p;
  CHECK(check_programs({reader.run(NodeKind::kCounts, F, 0, {{x, kRead}}).program()}).ok());
  CHECK_FALSE(check_programs({writer.run(NodeKind::kCounts, F, 0, {{x, kWrite}}).program()}).ok());
  CHECK_FALSE(
      check_programs({adder.run(NodeKind::kCounts, F, 0, {{x, kAccumulate}}).program()}).ok());
}

TEST_CASE("order passes on through lanes and through the host") {
  HandProgram chain, host;
  for (HandProgram* p : {&chain, &host}) {
    p->slot(kPermuted, 0, 0);
    p->run(NodeKind::kAttention, F, 0, {{0, kWrite}}).record(Lane::kCompute, F);
  }
  chain.wait(Lane::kEp, F, Lane::kCompute).record(Lane::kEp, F);
  chain.wait(Lane::kSendFwd, F, Lane::kEp).send(F, 0, 0, {{0, kRead}});
  CHECK_FALSE(has(check_programs({chain.program()}), Finding::Kind::kRace));
  // What is enqueued after a HOST_WAIT runs after what the host waited for, on every lane.
  host.host_wait(0, F, Lane::kCompute).run(NodeKind::kDispatch, F, 0, {{0, kRead}});
  CHECK(texts(check_programs({host.program()})).empty());
}

TEST_CASE("a slot is read only between its first write and the reuse of its buffer") {
  HandProgram p;
  const std::int32_t old = p.slot(kX, 0, 0, 0), young = p.slot(kX, 1, 0, 0);
  const std::int32_t params = p.slot(kParams, -1, -1, 1);
  HandProgram unwritten = p;
  unwritten.run(NodeKind::kAttention, F, 0, {{old, kRead}, {params, kRead}});
  const CheckReport none = check_programs({unwritten.program()});
  CHECK(none.total_findings == 1);  // parameters are there from the start
  CHECK(has(none, Finding::Kind::kUninitialised));

  p.run(NodeKind::kEmbedding, F, 0, {{old, kWrite}});
  p.run(NodeKind::kEmbedding, F, 1, {{young, kWrite}});
  HandProgram freed = p;
  CHECK(check_programs({p.run(NodeKind::kAttention, F, 1, {{young, kRead}}).program()}).ok());
  const CheckReport stale =
      check_programs({freed.run(NodeKind::kAttention, F, 0, {{old, kRead}}).program()});
  REQUIRE(has(stale, Finding::Kind::kUninitialised));
  CHECK(stale.findings[0].what.find("m1") != std::string::npos);  // who took the buffer
}

TEST_CASE("slots in one buffer are one piece of memory") {
  HandProgram p;
  const std::int32_t old = p.slot(kX, 0, 0, 0), young = p.slot(kX, 1, 0, 0);
  p.run(NodeKind::kEmbedding, F, 0, {{old, kWrite}}).record(Lane::kCompute, F);
  p.wait(Lane::kRecvFwd, F, Lane::kCompute);
  p.run(NodeKind::kAttention, F, 0, {{old, kRead}});
  p.recv(F, 1, 0, {{young, kWrite}});  // ordered after the first write, but not after the read
  CHECK(has(check_programs({p.program()}), Finding::Kind::kRace));
}

TEST_CASE("events and counts") {
  HandProgram p;
  CHECK(has(check_programs({p.wait(Lane::kEp, F, Lane::kCompute).program()}),
            Finding::Kind::kBadEvent));

  HandProgram with, other_layer;
  for (HandProgram* q : {&with, &other_layer}) {
    q->slot(kCountsRecv, 3, 0);
    q->run(NodeKind::kCounts, F, 3, {{0, kWrite}}).record(Lane::kEp, F);
  }
  with.host_wait(3, F, Lane::kEp, {{0, kRead}}, 7).run(NodeKind::kDispatch, F, 3, {}, 7);
  CHECK(texts(check_programs({with.program()})).empty());
  other_layer.host_wait(3, F, Lane::kEp, {{0, kRead}}, 6).run(NodeKind::kDispatch, F, 3, {}, 7);
  CHECK(has(check_programs({other_layer.program()}), Finding::Kind::kMissingCounts));
}

TEST_CASE("sends and receives match pairwise and in order") {
  HandProgram from(0, 2), swapped(0, 2), to(1, 2);
  from.send(F, 0, 1).send(F, 1, 1);
  swapped.send(F, 1, 1).send(F, 0, 1);
  to.recv(F, 0, 0).recv(F, 1, 0);
  CHECK(check_programs({from.program(), to.program()}).ok());
  CHECK(has(check_programs({swapped.program(), to.program()}), Finding::Kind::kUnmatched));
  HandProgram short_of_one(0, 2);
  const CheckReport missing = check_programs({short_of_one.send(F, 0, 1).program(), to.program()});
  CHECK(has(missing, Finding::Kind::kUnmatched));
  CHECK(has(missing, Finding::Kind::kDeadlock));
}

TEST_CASE("sends that would need buffering deadlock") {
  // Each stage receives only after its own send is over. Buffered sends would get away with it.
  HandProgram first(0, 2), second(1, 2);
  first.send(F, 0, 1).record(Lane::kSendFwd, F).wait(Lane::kRecvBwd, F, Lane::kSendFwd);
  first.recv(B, 0, 1);
  second.send(B, 0, 0).record(Lane::kSendBwd, B).wait(Lane::kRecvFwd, B, Lane::kSendBwd);
  second.recv(F, 0, 0);
  const CheckReport report = check_programs({first.program(), second.program()});
  CHECK_FALSE(has(report, Finding::Kind::kUnmatched));
  REQUIRE(has(report, Finding::Kind::kDeadlock));
  CHECK(report.total_findings == 2);  // one per stage, naming where its lanes stop
  CHECK(report.findings[0].what.find("SEND") != std::string::npos);
  CHECK(report.findings[0].what.find("WAIT") != std::string::npos);
}

TEST_CASE("the end of a step is complete on every stage") {
  HandProgram whole(0, 2), partial(1, 2), twice(1, 2);
  whole.step_end();
  CHECK(has(check_programs({whole.program(), partial.program()}), Finding::Kind::kCollective));
  twice.step_end().step_end();
  CHECK(has(check_programs({whole.program(), twice.program()}), Finding::Kind::kCollective));
  HandProgram other(1, 2);
  CHECK(check_programs({whole.program(), other.step_end().program()}).ok());

  Program wrong_lane = whole.program();
  wrong_lane.pp = 1;
  wrong_lane.instrs[1].lane = Lane::kCompute;
  CHECK(has(check_programs({wrong_lane}), Finding::Kind::kCollective));
}

TEST_CASE("a wait for the other direction's work is counted") {
  HandProgram p;
  const std::int32_t x = p.slot(kPermuted, 0, 0);
  p.run(NodeKind::kAttention, F, 0, {{x, kWrite}});
  p.run(NodeKind::kAttention, B, 1, {});
  p.record(Lane::kCompute, F).wait(Lane::kEp, F, Lane::kCompute);  // one event for both
  p.run(NodeKind::kCounts, F, 0, {{x, kRead}});
  const CheckReport report = check_programs({p.program()});
  CHECK(report.cross_direction_waits == 1);
  CHECK(report.waits == 1);
  CHECK(report.records == 1);
}

TEST_CASE("findings are capped, their number is not") {
  HandProgram p;
  for (int i = 0; i < 50; ++i) p.wait(Lane::kEp, F, Lane::kCompute);
  const CheckReport report = check_programs({p.program()}, 7);
  CHECK(report.findings.size() == 7);
  CHECK(report.total_findings == 50);
}

// ---- programs of the lowering passes
// -------------------------------------------------------------

TEST_CASE("lowered programs are sound and direction-pure; shared events are not pure") {
  long shared_crossings = 0;
  for (Sample sample : small_samples()) {
    INFO(sample.name());
    for (const ProgramKind kind : {ProgramKind::kTraining, ProgramKind::kEvaluation}) {
      const CheckReport report = check_programs(build(sample, kind));
      INFO(texts(report));
      CHECK(report.ok());
      CHECK(report.cross_direction_waits == 0);
      CHECK(report.instrs > 0);
    }
    sample.events = EventMode::kShared;
    const CheckReport report = check_programs(build(sample));
    INFO(texts(report));
    CHECK(report.ok());
    shared_crossings += report.cross_direction_waits;
  }
  CHECK(shared_crossings > 0);
  const CheckReport paired = check_programs(build({.pp = 2,
                                                   .vpp = 2,
                                                   .microbatches = 4,
                                                   .layers = {1, 1, 1, 1},
                                                   .events = EventMode::kShared}));
  CHECK(paired.cross_direction_waits > 0);
}

// Removes every instruction of `op` in turn; returns the text of those nobody missed.
std::string unnoticed_removals(std::vector<Program> programs, Op op, long& tried) {
  std::string out;
  for (Program& program : programs)
    for (std::size_t i = 0; i < program.instrs.size(); ++i) {
      if (program.instrs[i].op != op) continue;
      const Instr removed = program.instrs[i];
      program.instrs.erase(program.instrs.begin() + static_cast<std::ptrdiff_t>(i));
      ++tried;
      if (check_programs(programs, 1).ok())
        out +=
            fmt::format("stage {} line {} {}\n", program.stage, i + 2, to_text(program, removed));
      program.instrs.insert(program.instrs.begin() + static_cast<std::ptrdiff_t>(i), removed);
    }
  return out;
}

TEST_CASE("no instruction can be removed unnoticed") {
  for (const Op op :
       {Op::kWait, Op::kRecord, Op::kHostWait, Op::kSend, Op::kRecv, Op::kGradSync, Op::kOptStep}) {
    long tried = 0;
    for (const Sample& sample : small_samples()) {
      INFO(name_of(op) << " of " << sample.name());
      CHECK(unnoticed_removals(build(sample), op, tried) == "");
    }
    CHECK(tried > 0);
  }
}

// Every access to the gradients of experts: stage and instruction.
std::vector<std::pair<std::size_t, std::size_t>> expert_gradients(const std::vector<Program>& all) {
  std::vector<std::pair<std::size_t, std::size_t>> list;
  for (std::size_t s = 0; s < all.size(); ++s)
    for (std::size_t i = 0; i < all[s].instrs.size(); ++i)
      if (all[s].instrs[i].op == Op::kRun && all[s].instrs[i].node == NodeKind::kExperts &&
          all[s].instrs[i].phase == Phase::kBwdWeight)
        list.emplace_back(s, i);
  return list;
}

TEST_CASE("the first gradients of experts are stored and the others added, or it is noticed") {
  long stores = 0, additions = 0;
  for (const Sample& sample : small_samples()) {
    INFO(sample.name());
    const std::vector<Program> sound = build(sample);
    std::set<std::pair<std::size_t, std::int32_t>> stored;  // stage and slot
    for (const auto& [stage, i] : expert_gradients(sound)) {
      std::vector<Program> programs = sound;
      SlotAccess& use = programs[stage].instrs[i].uses.back();
      REQUIRE(sound[stage].slots[static_cast<std::size_t>(use.slot)].kind == kGradsExperts);
      const bool first = stored.insert({stage, use.slot}).second;
      REQUIRE((use.access == kWrite) == first);
      use.access = first ? kAccumulate : kWrite;
      CHECK(has(check_programs(programs),
                first ? Finding::Kind::kUninitialised : Finding::Kind::kOverwritten));
      ++(first ? stores : additions);
    }
  }
  CHECK(stores > 0);
  CHECK(additions > stores);
}

TEST_CASE("transfers in another order or to another stage are noticed") {
  const Sample sample{.pp = 4, .vpp = 2, .microbatches = 4, .layers = {1, 1, 1, 1, 1, 1, 1, 1}};
  const std::vector<Program> sound = build(sample);
  long swaps = 0, redirections = 0;
  for (std::size_t s = 0; s < sound.size(); ++s) {
    std::int32_t previous[kNumLanes];
    std::fill(std::begin(previous), std::end(previous), -1);
    for (std::size_t i = 0; i < sound[s].instrs.size(); ++i) {
      const Instr& instr = sound[s].instrs[i];
      if (instr.op != Op::kSend && instr.op != Op::kRecv) continue;
      std::vector<Program> programs = sound;
      programs[s].instrs[i].peer = (instr.peer + 1) % sample.pp;
      CHECK(has(check_programs(programs), Finding::Kind::kUnmatched));
      ++redirections;
      std::int32_t& last = previous[static_cast<int>(instr.lane)];
      if (last >= 0) {
        programs = sound;
        std::swap(programs[s].instrs[i], programs[s].instrs[last]);
        CHECK(has(check_programs(programs), Finding::Kind::kUnmatched));
        ++swaps;
      }
      last = static_cast<std::int32_t>(i);
    }
  }
  CHECK(swaps > 0);
  CHECK(redirections > swaps);
}

}  // namespace
}  // namespace tandem
