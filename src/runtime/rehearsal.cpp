#include "tandem/runtime/rehearsal.h"

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/nn/node_ctx.h"
#include "tandem/runtime/scratch_arena.h"

namespace tandem {
namespace {

// Zeros for one node: its slots, a micro-batch, the two losses.
class Rehearsal {
 public:
  Rehearsal(const RankState& rank, const Program& program, const Instr& instr)
      : rank_(rank), stream_(rank.lanes.stream(instr.lane)) {
    for (const SlotAccess& use : instr.uses) {
      const Slot& slot = program.slots[static_cast<std::size_t>(use.slot)];
      const int offset = slot.layer < 0 ? 0 : slot.layer - instr.layer;
      const SlotLayout layout =
          slot_layout(slot.kind, rank.dims, rank.config.model.qk_norm, rank.dims.routed());
      auto* data = static_cast<std::byte*>(zeros(static_cast<std::size_t>(layout.bytes)));
      slots_.push_back({slot.kind, offset, use.access, data, rank.dims.routed()});
    }
    batch_ = {ids(), ids()};
    spread_rows();
    losses_ = {zeros(3 * sizeof(float)), DType::kF32, 3, 1};
  }

  void play(const Instr& instr, Scratch& scratch) {
    const NodeCtx ctx{.device = rank_.device,
                      .stream = stream_,
                      .model = rank_.config.model,
                      .dims = rank_.dims,
                      .params = rank_.params,
                      .scratch = scratch,
                      .ep = nullptr,
                      .slots = slots_,
                      .batch = batch_,
                      .routing = &routing_,
                      .layer = instr.layer,
                      .moe = instr.moe,
                      .training = true,
                      .loss_scale = 0.0F,
                      .aux_scale = 0.0F,
                      .loss = losses_.slice(0, 1),
                      .aux = losses_.slice(1, 2),
                      .alltoall_delay_us = 0.0,
                      .loss_chunk = rank_.config.train.loss_chunk_tokens};
    run_node(instr.node, instr.phase, ctx);
    // hazard: the node before its memory is freed
    stream_.sync();
  }

 private:
  void* zeros(std::size_t bytes) {
    memory_.push_back(rank_.device.alloc(bytes, "the rehearsal of a node"));
    void* data = memory_.back().data();
    if (bytes > 0) rank_.device.fill(stream_, data, 0, bytes);
    return data;
  }
  View ids() {
    const std::int64_t tokens = rank_.dims.tokens;
    return {zeros(static_cast<std::size_t>(tokens) * sizeof(std::int32_t)), DType::kI32, tokens, 1};
  }

  // As many rows for every expert as a step brings on average.
  void spread_rows() {
    const std::int64_t experts = rank_.dims.local_experts, rows = rank_.dims.routed();
    for (std::int64_t e = 0; e < experts; ++e)
      routing_.expert_rows.push_back(rows * (e + 1) / experts - rows * e / experts);
    routing_.received = rows;
  }

  const RankState& rank_;
  Stream& stream_;
  std::vector<Buffer> memory_;
  std::vector<BoundSlot> slots_;
  BatchView batch_;
  Routing routing_;
  View losses_;
};

}  // namespace

void rehearse(const RankState& rank, const Program& program) {
  // A node that starts a slot afresh may launch other kernels than one that adds to it.
  std::set<std::tuple<NodeKind, Phase, bool, std::vector<Access>>> seen;
  for (const Instr& instr : program.instrs) {
    if (instr.op != Op::kRun || instr.lane != Lane::kCompute) continue;
    std::vector<Access> accesses;
    for (const SlotAccess& use : instr.uses) accesses.push_back(use.access);
    if (!seen.insert({instr.node, instr.phase, instr.moe, std::move(accesses)}).second) continue;
    ScratchArena scratch(rank.device, "rehearsal");
    Rehearsal(rank, program, instr).play(instr, scratch);
  }
}

}  // namespace tandem
