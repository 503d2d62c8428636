// A program is the list of instructions one pipeline stage executes in a step. It depends on the
// config alone: built and checked once, printed, parsed back, simulated, and run by one loop.
// All data-parallel ranks of a stage run the same program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/model/node.h"

namespace tandem {

enum class Op : std::uint8_t {
  kRun,       // RUN a node on its lane
  kRecord,    // RECORD an event on its lane
  kWait,      // WAIT on a lane for the latest record (in program order) of an event
  kSend,      // SEND a slot to a pipeline peer (lanes send_fwd, send_bwd)
  kRecv,      // RECV a slot from a pipeline peer (lanes recv_fwd, recv_bwd)
  kHostWait,  // HOST_WAIT: the host waits for an event, then reads the token counts
  kGradSync,  // GRAD_SYNC: sum the gradients of one chunk over the ranks that share it (lane dp)
  kOptStep,   // OPT_STEP: norm, clip, update, gather parameters (lane dp)
};

// One event per direction and lane. In shared mode every event has Dir::kFwd: one for both.
struct EventId {
  Dir dir = Dir::kFwd;
  Lane lane = Lane::kCompute;
  bool operator==(const EventId&) const = default;
};

struct SlotAccess {
  std::int32_t slot = -1;         // index into Program::slots
  Access access = Access::kRead;
  bool operator==(const SlotAccess&) const = default;
};

struct Instr {
  Op op = Op::kRun;
  Lane lane = Lane::kCompute;     // kHost for HOST_WAIT
  Dir dir = Dir::kFwd;
  std::int32_t chunk = -1;
  std::int32_t microbatch = -1;
  std::int32_t layer = -1;        // global layer; for the head its chunk's layer_end; -1: none
  NodeKind node = NodeKind::kEmbedding;   // RUN only
  Phase phase = Phase::kFwd;              // RUN only
  bool moe = false;                       // RUN attention: ends with the router
  EventId event;                  // RECORD, WAIT, HOST_WAIT
  std::int32_t peer = -1;         // SEND, RECV: stage index
  std::vector<SlotAccess> uses;   // RUN, SEND, RECV, HOST_WAIT, GRAD_SYNC, OPT_STEP
  bool operator==(const Instr&) const = default;
};

// A named tensor group of this program. Persistent slots (params, grads) have microbatch and
// layer -1. `buffer` is set by bind_slots: slots whose lives do not meet share a buffer.
struct Slot {
  SlotKind kind = SlotKind::kX;
  std::int32_t chunk = 0;
  std::int32_t microbatch = -1;
  std::int32_t layer = -1;
  std::int32_t buffer = -1;
  bool operator==(const Slot&) const = default;
};

struct Program {
  int stage = 0;                  // pipeline stage
  int pp = 1, vpp = 1, microbatches = 1;
  int num_buffers = 0;            // buffers 0 .. n-1, each of the SlotKind of the slots bound to it
  std::vector<Slot> slots;
  std::vector<Instr> instrs;
  bool operator==(const Program&) const = default;
};

// "RUN compute F c0 m1 l3 attention.fwd moe r:params.c0@2 r:x.c0.m1.l3@7 w:h.c0.m1.l3@9 ..."
// "RECORD compute F:compute", "WAIT ep F:compute" (lane ep waits for event (F, compute)), ...
// docs/SCHEDULE.md has the grammar. from_text(to_text(p)) == p for every program whose slots are
// numbered by first mention, as expand numbers them; from_text throws Error(kBadInput) naming the
// line.
std::string to_text(const Program& program);
std::string to_text(const Program& program, const Instr& instr);
Program from_text(std::string_view text);

// FNV-1a over the text form: ranks compare it at start so that a mismatched launch fails at once.
std::uint64_t hash_of(const Program& program);

std::string_view name_of(Op op);  // "RUN", "RECORD", ...

}  // namespace tandem
