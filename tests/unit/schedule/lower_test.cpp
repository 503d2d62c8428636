#include "tandem/schedule/lower.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "lower_options.h"
#include "tandem/schedule/check.h"

using namespace tandem;

namespace {

// "F attention.fwd", "B experts.bwd_input", "F HOST_WAIT", ... : what is enqueued, in order.
std::string label(const Instr& instr) {
  if (instr.op != Op::kRun) return fmt::format("{} {}", name_of(instr.dir), name_of(instr.op));
  return fmt::format("{} {}.{}", name_of(instr.dir), name_of(instr.node), name_of(instr.phase));
}

using Labels = std::vector<std::string>;

Labels labels(const Program& program, std::size_t begin, std::size_t end) {
  Labels out;
  for (std::size_t i = begin; i < end; ++i) out.push_back(label(program.instrs[i]));
  return out;
}

// Labels of the first step that pairs a forward with a backward task.
Labels first_pair(const LowerOptions& options, int stage) {
  const Program program = expand(options, ProgramKind::kTraining, stage);
  const std::vector<Task> order = training_order(options.shape, stage);
  const auto task =
      std::find_if(order.begin(), order.end(), [](const Task& t) { return t.paired; });
  const auto of = [](const Instr& instr, const Task& t) {
    return instr.dir == t.dir && instr.chunk == t.chunk && instr.microbatch == t.microbatch &&
           instr.op != Op::kRecv;
  };
  Labels out;
  for (const Instr& instr : program.instrs)
    if (of(instr, task[0]) || of(instr, task[1])) out.push_back(label(instr));
  return out;
}

std::size_t find(const Labels& list, const std::string& what) {
  const auto it = std::find(list.begin(), list.end(), what);
  REQUIRE(it != list.end());
  return static_cast<std::size_t>(it - list.begin());
}

}  // namespace

TEST_CASE("a pair of MoE layers: every all-to-all beside compute of the other direction") {
  const LowerOptions options = lower_evenly({1, 1, 2, 1, true}, 2);
  const Labels one_pair = {"B aggregate.bwd_input", "B combine.bwd_input",  "F attention.fwd",
                           "B experts.bwd_input",   "F counts.fwd",         "F HOST_WAIT",
                           "F dispatch.fwd",        "B experts.bwd_weight", "B dispatch.bwd_input",
                           "F experts.fwd",         "F combine.fwd",        "B attention.bwd_input",
                           "B attention.bwd_weight"};
  Labels expected = {"F embedding.fwd", "B head.bwd_input"};
  expected.insert(expected.end(), one_pair.begin(), one_pair.end());
  expected.insert(expected.end(), one_pair.begin(), one_pair.begin() + 2);
  expected.push_back("F aggregate.fwd");  // of the first layer, hidden by its attention backward
  expected.insert(expected.end(), one_pair.begin() + 2, one_pair.end());
  for (const char* last : {"F aggregate.fwd", "F head.fwd", "B embedding.bwd_weight"})
    expected.push_back(last);
  CHECK(first_pair(options, 0) == expected);
}

TEST_CASE("weight gradients that are not delayed follow their node") {
  LowerOptions options = lower_by_hand({1, 1, 2, 1, true}, {2}, {1, 0});
  options.delay_wgrad = false;
  const Labels list = first_pair(options, 0);
  for (const char* node : {"experts", "mlp"})
    CHECK(find(list, fmt::format("B {}.bwd_weight", node)) ==
          find(list, fmt::format("B {}.bwd_input", node)) + 1);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i] == "B attention.bwd_input") CHECK(list.at(i + 1) == "B attention.bwd_weight");
}

TEST_CASE("dense layers drop the all-to-alls and pair with MoE layers") {
  // Forward meets dense first while backward meets MoE first.
  const Labels expected = {"F embedding.fwd",
                           "B head.bwd_input",
                           "B aggregate.bwd_input",
                           "B combine.bwd_input",
                           "F attention.fwd",
                           "B experts.bwd_input",
                           "B experts.bwd_weight",
                           "B dispatch.bwd_input",
                           "F mlp.fwd",
                           "B attention.bwd_input",
                           "B attention.bwd_weight",
                           "F attention.fwd",
                           "B mlp.bwd_input",
                           "F counts.fwd",
                           "F HOST_WAIT",
                           "F dispatch.fwd",
                           "B mlp.bwd_weight",
                           "F experts.fwd",
                           "F combine.fwd",
                           "B attention.bwd_input",
                           "B attention.bwd_weight",
                           "F aggregate.fwd",
                           "F head.fwd",
                           "B embedding.bwd_weight"};
  CHECK(first_pair(lower_by_hand({1, 1, 2, 1, true}, {2}, {0, 1}), 0) == expected);
}

TEST_CASE("surplus layers run alone, transfers leave as early as they can") {
  // Stage 1 pairs chunk 1 forward with chunk 1 backward: equal. Stage 0 of PP2 V2 pairs F c1 with
  // B c1 and F c0 with B c1: 2 layers forward, 1 backward.
  const LowerOptions options = lower_by_hand({2, 2, 4, 2, true}, {2, 1, 1, 1}, {0, 0, 0, 0, 0});
  const Program program = expand(options, ProgramKind::kTraining, 0);
  const std::vector<Task> order = training_order(options.shape, 0);
  const auto pair = std::find_if(order.begin(), order.end(),
                                 [](const Task& t) { return t.paired && t.chunk == 0; });
  REQUIRE(pair != order.end());
  REQUIRE(pair[1].chunk == 1);
  Labels list;
  for (const Instr& instr : program.instrs)
    for (const Task* t : {&pair[0], &pair[1]})
      if (instr.dir == t->dir && instr.chunk == t->chunk && instr.microbatch == t->microbatch &&
          instr.op != Op::kRecv)
        list.push_back(label(instr));
  CHECK(list == Labels{"F embedding.fwd", "F attention.fwd", "B mlp.bwd_input", "B mlp.bwd_weight",
                       "F mlp.fwd", "B attention.bwd_input", "B SEND", "B attention.bwd_weight",
                       "F attention.fwd", "F mlp.fwd", "F SEND"});
}

TEST_CASE("the last weight gradient hides both sends of a pair") {
  const LowerOptions options = lower_evenly({4, 1, 8, 4, true}, 1);
  const Labels list = first_pair(options, 1);
  const std::size_t weight = find(list, "B attention.bwd_weight");
  CHECK(find(list, "B SEND") == find(list, "B attention.bwd_input") + 1);
  CHECK(find(list, "F SEND") < weight);
  CHECK(find(list, "F aggregate.fwd") < find(list, "F SEND"));
  CHECK(weight + 1 == list.size());
}

TEST_CASE("a backward layer alone overlaps dispatch with the experts' weight gradient") {
  const LowerOptions options = lower_evenly({1, 1, 1, 1, true}, 1);
  const Program program = expand(options, ProgramKind::kTraining, 0);
  const Labels list = labels(program, 0, program.instrs.size());
  CHECK(find(list, "B dispatch.bwd_input") + 1 == find(list, "B experts.bwd_weight"));
  CHECK(list.back() == "B OPT_STEP");
  CHECK(list[list.size() - 2] == "B GRAD_SYNC");
}

TEST_CASE("one transfer per direction is under way while its predecessor's task runs") {
  for (const bool overlap : {false, true})
    for (int stage = 0; stage < 3; ++stage) {
      const LowerOptions options = lower_evenly({3, 2, 6, 3, overlap}, 1);
      const Program program = expand(options, ProgramKind::kTraining, stage);
      for (const Dir dir : {Dir::kFwd, Dir::kBwd}) {
        const Instr* pending = nullptr;
        for (const Instr& instr : program.instrs) {
          if (instr.dir != dir) continue;
          if (instr.op == Op::kRecv) {
            REQUIRE(pending == nullptr);
            pending = &instr;
          } else if (pending != nullptr && instr.chunk == pending->chunk &&
                     instr.microbatch == pending->microbatch) {
            REQUIRE(instr.uses.size() > 1);
            const auto reads = [&](const SlotAccess& use) {
              return use.slot == pending->uses[0].slot && use.access == Access::kRead;
            };
            REQUIRE(std::any_of(instr.uses.begin(), instr.uses.end(), reads));
            pending = nullptr;
          }
        }
        REQUIRE(pending == nullptr);
      }
    }
}

TEST_CASE("peers form a ring and the ends of the pipeline have none") {
  const LowerOptions options = lower_evenly({2, 2, 4, 2, true}, 1);
  std::map<std::pair<Op, Dir>, int> count;
  for (int stage = 0; stage < 2; ++stage)
    for (const Instr& instr : expand(options, ProgramKind::kTraining, stage).instrs) {
      if (instr.op != Op::kSend && instr.op != Op::kRecv) continue;
      CHECK(instr.peer == 1 - stage);
      ++count[{instr.op, instr.dir}];
    }
  for (const auto& [kind, n] : count) CHECK(n == 3 * 4);  // virtual stages - 1, micro-batches
  CHECK(count.size() == 4);
}

TEST_CASE("a chunk without layers passes on what it receives") {
  const LowerOptions options = lower_by_hand({2, 2, 2, 2, false}, {1, 0, 1, 1});
  const Program program = expand(options, ProgramKind::kTraining, 1);
  std::map<std::pair<Dir, int>, std::int32_t> received;
  int forwarded = 0;
  for (const Instr& instr : program.instrs) {
    if (instr.chunk != 0) continue;
    REQUIRE((instr.op == Op::kRecv || instr.op == Op::kSend || instr.op == Op::kGradSync));
    if (instr.op == Op::kRecv) received[{instr.dir, instr.microbatch}] = instr.uses[0].slot;
    if (instr.op != Op::kSend) continue;
    const std::int32_t slot = received.at({instr.dir, instr.microbatch});
    CHECK(instr.uses[0].slot == slot);
    ++forwarded;
  }
  CHECK(forwarded == 4);
}

TEST_CASE("chunks of a single stage hand over in memory") {
  const LowerOptions options = lower_by_hand({1, 3, 2, 1, false}, {1, 0, 1});
  const Program program = expand(options, ProgramKind::kTraining, 0);
  std::set<std::tuple<SlotKind, int, int>> seen;
  for (const Slot& slot : program.slots)
    if (slot.kind == SlotKind::kX || slot.kind == SlotKind::kDx)
      CHECK(seen.insert({slot.kind, slot.microbatch, slot.layer}).second);
  CHECK(seen.size() == 2 * 2 * 3);  // x and d_x, micro-batches, layers 0 .. 2
  for (const Instr& instr : program.instrs) CHECK((instr.op != Op::kSend && instr.op != Op::kRecv));
}

TEST_CASE("nodes use exactly the slots they declare; sums that start afresh are first written") {
  const LowerOptions options = lower_by_hand({2, 1, 2, 2, true}, {3, 2}, {1, 0, 1, 1, 1});
  for (int stage = 0; stage < 2; ++stage) {
    const Program program = expand(options, ProgramKind::kTraining, stage);
    std::set<std::int32_t> started;
    for (const Instr& instr : program.instrs) {
      if (instr.op != Op::kRun) continue;
      const NodeDesc* desc = describe(instr.node, instr.phase, instr.moe);
      REQUIRE(desc != nullptr);
      CHECK(instr.lane == desc->lane);
      REQUIRE(instr.uses.size() == desc->uses.size());
      for (std::size_t u = 0; u < instr.uses.size(); ++u) {
        const Slot& slot = program.slots[static_cast<std::size_t>(instr.uses[u].slot)];
        const SlotUse& use = desc->uses[u];
        REQUIRE(slot.kind == use.kind);
        CHECK(slot.chunk == instr.chunk);
        if (!persistent(slot.kind)) CHECK(slot.microbatch == instr.microbatch);
        if (slot.kind == SlotKind::kGradsExperts ||
            (!persistent(slot.kind) && !chunk_wide(slot.kind)))
          CHECK(slot.layer == instr.layer + use.layer_offset);
        const bool first = started.insert(instr.uses[u].slot).second;
        CHECK(instr.uses[u].access ==
              (first_access_writes(slot.kind) && first ? Access::kWrite : use.access));
      }
    }
  }
}

TEST_CASE("evaluation runs forward only and keeps no gradients") {
  const LowerOptions options = lower_evenly({2, 2, 4, 2, true}, 1);
  for (const Program& program : build_all(options, ProgramKind::kEvaluation))
    for (const Instr& instr : program.instrs) {
      CHECK(instr.dir == Dir::kFwd);
      CHECK((instr.op != Op::kGradSync && instr.op != Op::kOptStep));
    }
  CHECK(check_programs(build_all(options, ProgramKind::kEvaluation)).ok());
}

TEST_CASE("gradients of every chunk are summed once, after its last backward, then the step") {
  const LowerOptions options = lower_evenly({2, 2, 2, 2, true}, 1);
  for (const Program& program : build_all(options)) {
    std::vector<int> synced(2, 0);
    for (const Instr& instr : program.instrs) {
      if (instr.op == Op::kGradSync) ++synced.at(static_cast<std::size_t>(instr.chunk));
      if (instr.op == Op::kRun && instr.dir == Dir::kBwd)
        CHECK(synced[static_cast<std::size_t>(instr.chunk)] == 0);
    }
    CHECK(synced == std::vector<int>{1, 1});
    const Instr& last = program.instrs.back();
    REQUIRE(last.op == Op::kOptStep);
    const auto writes = std::count_if(last.uses.begin(), last.uses.end(), [](const SlotAccess& u) {
      return u.access == Access::kWrite;
    });
    CHECK(writes == 2);  // the parameters of both chunks
    const bool head = program.stage == 1;
    CHECK(last.uses.size() == (head ? 7u : 6u));  // a MoE layer in each
  }
}

TEST_CASE("options come from the resolved config") {
  RunConfig config;
  config.model.layers = 8;
  config.parallel.pp = 2;
  config.parallel.vpp = 2;
  config.parallel.dp = 2;
  config.parallel.microbatch_group = 3;
  config.train.micro_batch = 2;
  config.train.global_batch = 20;
  config.overlap = {.enabled = true, .delay_wgrad = false, .events = EventMode::kShared};
  const LowerOptions options = lower_options(config);
  CHECK(options.shape.pp == 2);
  CHECK(options.shape.vpp == 2);
  CHECK(options.shape.group == 3);
  CHECK(options.shape.microbatches == 5);
  CHECK(options.shape.overlap);
  CHECK(!options.delay_wgrad);
  CHECK(options.events == EventMode::kShared);
  CHECK(options.partition.at(1, 1).layer_end == 8);
  CHECK(check_programs(build_all(options)).ok());
}
