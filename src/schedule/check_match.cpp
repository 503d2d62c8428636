// What stages owe one another: every SEND has its RECV, in the same order, and the collectives of a
// step are complete and on the lane that owns their communicator.
#include <algorithm>

#include "check_findings.h"

namespace tandem::checking {
namespace {

// What a transfer carries, named by the virtual stage that receives it.
struct Message {
  std::int32_t virtual_stage, microbatch, layer;
  SlotKind kind;
  bool operator==(const Message&) const = default;
};

struct Transfer {
  Message message;
  std::int32_t instr;
};

Message message_of(const Program& program, const Instr& instr) {
  const int here = instr.chunk * program.pp + program.stage;
  const int step = instr.dir == Dir::kFwd ? 1 : -1;
  Message message{instr.op == Op::kSend ? here + step : here, instr.microbatch, -1, SlotKind::kX};
  if (!instr.uses.empty()) {
    const Slot& slot = program.slots[instr.uses.front().slot];
    message.layer = slot.layer;
    message.kind = slot.kind;
  }
  return message;
}

Lane lane_of(const Instr& transfer) {
  if (transfer.op == Op::kSend) return transfer.dir == Dir::kFwd ? Lane::kSendFwd : Lane::kSendBwd;
  return transfer.dir == Dir::kFwd ? Lane::kRecvFwd : Lane::kRecvBwd;
}

std::string describe(const Program& program, const std::vector<Transfer>& list, std::size_t k) {
  return k < list.size() ? locate(program, list[k].instr) : std::string("nothing");
}

class Channels {
 public:
  explicit Channels(std::size_t stages) : stages_(stages), lists_(stages * stages * 2) {}
  std::vector<Transfer>& at(int from, int to, Dir dir) {
    return lists_[(static_cast<std::size_t>(from) * stages_ + to) * 2 +
                  static_cast<std::size_t>(dir)];
  }

 private:
  std::size_t stages_;
  std::vector<std::vector<Transfer>> lists_;
};

bool collective_of_ep(const Instr& instr) {
  return instr.op == Op::kRun &&
         (instr.node == NodeKind::kCounts || instr.node == NodeKind::kDispatch ||
          instr.node == NodeKind::kCombine);
}

// Per chunk of one stage, in program order.
struct ChunkGradients {
  std::int32_t last_accumulated = -1, synced = -1;
  int syncs = 0;
};

void check_step_end(const Program& program, Findings& findings) {
  const auto complain = [&](auto&& describe) {
    findings.add(Finding::Kind::kCollective, program.stage, describe);
  };
  std::vector<ChunkGradients> chunks(std::max(program.vpp, 0));
  std::int32_t opt_step = -1;
  int opt_steps = 0;
  const auto size = static_cast<std::int32_t>(program.instrs.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const Instr& instr = program.instrs[i];
    if (instr.op == Op::kOptStep) {
      opt_step = i;
      ++opt_steps;
    }
    if (instr.chunk < 0 || instr.chunk >= program.vpp) continue;
    ChunkGradients& chunk = chunks[instr.chunk];
    if (instr.op == Op::kGradSync) {
      chunk.synced = i;
      ++chunk.syncs;
    } else if (instr.op == Op::kRun) {
      for (const SlotAccess& use : instr.uses) {
        const SlotKind kind = program.slots[use.slot].kind;
        if (persistent(kind) && kind != SlotKind::kParams) chunk.last_accumulated = i;
      }
    }
  }
  if (opt_steps != 1)
    complain([&] {
      return fmt::format("stage {} has {} OPT_STEP; every stage needs exactly one", program.stage,
                         opt_steps);
    });
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const ChunkGradients& chunk = chunks[c];
    if (chunk.syncs != 1)
      complain([&] {
        return fmt::format("stage {} chunk {} has {} GRAD_SYNC; it needs exactly one",
                           program.stage, c, chunk.syncs);
      });
    if (chunk.syncs > 0 && chunk.synced < chunk.last_accumulated)
      complain([&] {
        return locate(program, chunk.synced) + " precedes " +
               locate(program, chunk.last_accumulated) + ", which adds to the same gradients";
      });
    if (opt_steps > 0 && chunk.synced > opt_step)
      complain([&] {
        return locate(program, chunk.synced) + " comes after " + locate(program, opt_step);
      });
  }
}

bool trains(const Program& program) {
  return std::any_of(program.instrs.begin(), program.instrs.end(), [](const Instr& instr) {
    return instr.op == Op::kOptStep || instr.op == Op::kGradSync ||
           (instr.op == Op::kRun && instr.phase != Phase::kFwd);
  });
}

}  // namespace

void check_transfers(const std::vector<Program>& by_stage, Findings& findings) {
  const auto stages = static_cast<int>(by_stage.size());
  Channels sent(by_stage.size()), received(by_stage.size());
  for (const Program& program : by_stage) {
    const auto size = static_cast<std::int32_t>(program.instrs.size());
    for (std::int32_t i = 0; i < size; ++i) {
      const Instr& instr = program.instrs[i];
      if (instr.op != Op::kSend && instr.op != Op::kRecv) continue;
      if (instr.peer < 0 || instr.peer >= stages || instr.lane != lane_of(instr)) {
        findings.add(Finding::Kind::kUnmatched, program.stage, [&] {
          return locate(program, i) +
                 " names a stage that is not there, or uses a lane of "
                 "another direction";
        });
        continue;
      }
      std::vector<Transfer>& list = instr.op == Op::kSend
                                        ? sent.at(program.stage, instr.peer, instr.dir)
                                        : received.at(instr.peer, program.stage, instr.dir);
      list.push_back({message_of(program, instr), i});
    }
  }
  for (int from = 0; from < stages; ++from)
    for (int to = 0; to < stages; ++to)
      for (const Dir dir : {Dir::kFwd, Dir::kBwd}) {
        const std::vector<Transfer>&out = sent.at(from, to, dir), &in = received.at(from, to, dir);
        const auto [o, r] = std::mismatch(
            out.begin(), out.end(), in.begin(), in.end(),
            [](const Transfer& a, const Transfer& b) { return a.message == b.message; });
        if (o == out.end() && r == in.end()) continue;
        const std::size_t k = o - out.begin();
        findings.add(Finding::Kind::kUnmatched, to, [&] {
          return fmt::format(
              "transfer {} of direction {} from stage {} to stage {}: {} meets {} ({} sends, {} "
              "receives)",
              k, name_of(dir), from, to, describe(by_stage[from], out, k),
              describe(by_stage[to], in, k), out.size(), in.size());
        });
      }
}

void check_collectives(const std::vector<Program>& by_stage, Findings& findings) {
  for (const Program& program : by_stage) {
    const auto size = static_cast<std::int32_t>(program.instrs.size());
    for (std::int32_t i = 0; i < size; ++i) {
      const Instr& instr = program.instrs[i];
      const bool gradients = instr.op == Op::kGradSync || instr.op == Op::kOptStep;
      if ((collective_of_ep(instr) && instr.lane != Lane::kEp) ||
          (gradients && instr.lane != Lane::kDp))
        findings.add(Finding::Kind::kCollective, program.stage, [&] {
          return fmt::format("{} is a collective of lane {}", locate(program, i),
                             name_of(gradients ? Lane::kDp : Lane::kEp));
        });
    }
  }
  if (std::none_of(by_stage.begin(), by_stage.end(), trains)) return;
  for (const Program& program : by_stage) check_step_end(program, findings);
}

}  // namespace tandem::checking
