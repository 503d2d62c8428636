// Programs written by hand, a line at a time, for tests that need one particular order.
#pragma once

#include <utility>
#include <vector>

#include "tandem/schedule/program.h"

namespace tandem {

class HandProgram {
 public:
  explicit HandProgram(int stage = 0, int pp = 1) {
    program_.stage = stage;
    program_.pp = pp;
  }

  std::int32_t slot(SlotKind kind, int microbatch, int layer, int buffer = -1) {
    program_.slots.push_back({kind, 0, microbatch, layer, buffer});
    if (buffer >= program_.num_buffers) program_.num_buffers = buffer + 1;
    return static_cast<std::int32_t>(program_.slots.size()) - 1;
  }
  HandProgram& run(NodeKind node, Dir dir, int microbatch, std::vector<SlotAccess> uses,
                   int layer = 0) {
    Instr i = instr(Op::kRun, Lane::kCompute, dir, microbatch, std::move(uses));
    i.node = node;
    i.phase = dir == Dir::kFwd ? Phase::kFwd : Phase::kBwdInput;
    i.lane = describe(node, Phase::kFwd, false)->lane;
    i.layer = layer;
    return add(i);
  }
  HandProgram& record(Lane lane, Dir event) {
    Instr i = instr(Op::kRecord, lane, event, -1, {});
    i.event = {event, lane};
    return add(i);
  }
  HandProgram& wait(Lane lane, Dir event, Lane from) {
    Instr i = instr(Op::kWait, lane, event, -1, {});
    i.event = {event, from};
    return add(i);
  }
  HandProgram& host_wait(int microbatch, Dir event, Lane from, std::vector<SlotAccess> uses = {},
                         int layer = 0) {
    Instr i = instr(Op::kHostWait, Lane::kHost, Dir::kFwd, microbatch, std::move(uses));
    i.event = {event, from};
    i.layer = layer;
    return add(i);
  }
  HandProgram& send(Dir dir, int microbatch, int peer, std::vector<SlotAccess> uses = {}) {
    return transfer(Op::kSend, dir == Dir::kFwd ? Lane::kSendFwd : Lane::kSendBwd, dir, microbatch,
                    peer, std::move(uses));
  }
  HandProgram& recv(Dir dir, int microbatch, int peer, std::vector<SlotAccess> uses = {}) {
    return transfer(Op::kRecv, dir == Dir::kFwd ? Lane::kRecvFwd : Lane::kRecvBwd, dir, microbatch,
                    peer, std::move(uses));
  }
  HandProgram& step_end() {
    add(instr(Op::kGradSync, Lane::kDp, Dir::kBwd, -1, {}));
    return add(instr(Op::kOptStep, Lane::kDp, Dir::kBwd, -1, {}));
  }

  [[nodiscard]] const Program& program() const { return program_; }

 private:
  static Instr instr(Op op, Lane lane, Dir dir, int microbatch, std::vector<SlotAccess> uses) {
    Instr i;
    i.op = op;
    i.lane = lane;
    i.dir = dir;
    i.chunk = 0;
    i.microbatch = microbatch;
    i.uses = std::move(uses);
    return i;
  }
  HandProgram& transfer(Op op, Lane lane, Dir dir, int microbatch, int peer,
                        std::vector<SlotAccess> uses) {
    Instr i = instr(op, lane, dir, microbatch, std::move(uses));
    i.peer = peer;
    return add(i);
  }
  HandProgram& add(const Instr& i) {
    program_.instrs.push_back(i);
    return *this;
  }

  Program program_;
};

}  // namespace tandem
