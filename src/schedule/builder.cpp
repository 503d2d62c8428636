#include "builder.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int kFirstPersistent = static_cast<int>(SlotKind::kGrads);

Lane p2p_lane(Op op, Dir dir) {
  if (op == Op::kSend) return dir == Dir::kFwd ? Lane::kSendFwd : Lane::kSendBwd;
  return dir == Dir::kFwd ? Lane::kRecvFwd : Lane::kRecvBwd;
}

}  // namespace

ProgramBuilder::ProgramBuilder(const LowerOptions& options, int stage) : options_(options) {
  const PipelineShape& shape = options.shape;
  TANDEM_CHECK(options.partition.pp == shape.pp, "partition and pipeline shape differ");
  TANDEM_CHECK(options.partition.vpp == shape.vpp, "partition and pipeline shape differ");
  program_.stage = stage;
  program_.pp = shape.pp;
  program_.vpp = shape.vpp;
  program_.microbatches = shape.microbatches;
  moe_.resize(static_cast<std::size_t>(options.model.layers));
  for (int layer = 0; layer < options.model.layers; ++layer)
    moe_[static_cast<std::size_t>(layer)] = options.model.is_moe(layer);
  for (int chunk = 0; chunk < shape.vpp; ++chunk)
    layer_slots_ = std::max(layer_slots_, options.partition.at(stage, chunk).layers() + 1);
  const auto chunks = static_cast<std::size_t>(shape.vpp);
  numbers_.assign(static_cast<std::size_t>(kFirstPersistent) * chunks *
                      static_cast<std::size_t>(shape.microbatches * layer_slots_),
                  -1);
  persistent_.assign(static_cast<std::size_t>(kNumSlotKinds - kFirstPersistent) * chunks *
                         static_cast<std::size_t>(layer_slots_),
                     -1);
}

const ChunkPlan& ProgramBuilder::plan(const Task& task) const {
  return options_.partition.at(program_.stage, task.chunk);
}

int ProgramBuilder::virtual_stage(const Task& task) const {
  return task.chunk * program_.pp + program_.stage;
}

bool ProgramBuilder::receives(const Task& task) const {
  const int first = task.dir == Dir::kFwd ? 0 : program_.pp * program_.vpp - 1;
  return program_.pp > 1 && virtual_stage(task) != first;
}

bool ProgramBuilder::sends(const Task& task) const {
  const int last = task.dir == Dir::kFwd ? program_.pp * program_.vpp - 1 : 0;
  return program_.pp > 1 && virtual_stage(task) != last;
}

Instr& ProgramBuilder::append(Op op, Lane lane, Dir dir, int chunk, int microbatch, int layer) {
  Instr& instr = program_.instrs.emplace_back();
  instr.op = op;
  instr.lane = lane;
  instr.dir = dir;
  instr.chunk = chunk;
  instr.microbatch = microbatch;
  instr.layer = layer;
  return instr;
}

ProgramBuilder::Key ProgramBuilder::key_of(SlotKind kind, const Task& task, int layer) const {
  if (kind == SlotKind::kGradsExperts) return {kind, task.chunk, -1, layer};
  if (persistent(kind)) return {kind, task.chunk, -1, -1};
  if (chunk_wide(kind)) return {kind, task.chunk, task.microbatch, -1};
  return layer_key(kind, task, layer);
}

// On a single stage a chunk's output is the next chunk's input: one slot, named by its reader.
ProgramBuilder::Key ProgramBuilder::layer_key(SlotKind kind, const Task& task, int layer) const {
  int chunk = task.chunk;
  if (program_.pp == 1 && (kind == SlotKind::kX || kind == SlotKind::kDx))
    while (chunk + 1 < program_.vpp && layer == options_.partition.at(0, chunk).layer_end) ++chunk;
  return {kind, chunk, task.microbatch, layer};
}

std::int32_t& ProgramBuilder::number_of(const Key& key) {
  const int kind = static_cast<int>(key.kind);
  const int offset =
      key.layer < 0 ? 0 : key.layer - options_.partition.at(program_.stage, key.chunk).layer_begin;
  const auto at = [&](int row) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(layer_slots_) +
           static_cast<std::size_t>(offset);
  };
  if (persistent(key.kind))
    return persistent_[at((kind - kFirstPersistent) * program_.vpp + key.chunk)];
  return numbers_[at((kind * program_.vpp + key.chunk) * program_.microbatches + key.microbatch)];
}

void ProgramBuilder::use(Instr& instr, const Key& key, Access access) {
  std::int32_t& number = number_of(key);
  if (number < 0) {
    number = static_cast<std::int32_t>(program_.slots.size());
    program_.slots.push_back({key.kind, key.chunk, key.microbatch, key.layer, -1});
    if (instr.op == Op::kRun && first_access_writes(key.kind)) access = Access::kWrite;
  }
  instr.uses.push_back({number, access});
}

void ProgramBuilder::run(const Task& task, NodeKind node, Phase phase, int layer) {
  const bool routed = node == NodeKind::kAttention && moe(layer);
  const NodeDesc* desc = describe(node, phase, routed);
  TANDEM_CHECK(desc != nullptr, "{} has no {}", name_of(node), name_of(phase));
  Instr& instr = append(Op::kRun, desc->lane, task.dir, task.chunk, task.microbatch, layer);
  instr.node = node;
  instr.phase = phase;
  instr.moe = routed;
  instr.uses.reserve(desc->uses.size());
  for (const SlotUse& u : desc->uses)
    use(instr, key_of(u.kind, task, layer + u.layer_offset), u.access);
}

void ProgramBuilder::host_wait(const Task& task, int layer) {
  Instr& instr = append(Op::kHostWait, Lane::kHost, task.dir, task.chunk, task.microbatch, layer);
  instr.event = {task.dir, Lane::kEp};
  instr.uses.reserve(2);
  use(instr, layer_key(SlotKind::kCountsSend, task, layer), Access::kRead);
  use(instr, layer_key(SlotKind::kCountsRecv, task, layer), Access::kRead);
}

void ProgramBuilder::p2p(const Task& task, Op op) {
  const bool fwd = task.dir == Dir::kFwd;
  // Forward enters at layer_begin and leaves at layer_end; backward the other way round.
  const ChunkPlan& chunk = plan(task);
  const int layer = (op == Op::kRecv) == fwd ? chunk.layer_begin : chunk.layer_end;
  Instr& instr = append(op, p2p_lane(op, task.dir), task.dir, task.chunk, task.microbatch, layer);
  const int step = (op == Op::kSend) == fwd ? 1 : -1;
  instr.peer = (program_.stage + step + program_.pp) % program_.pp;
  use(instr, layer_key(fwd ? SlotKind::kX : SlotKind::kDx, task, layer),
      op == Op::kRecv ? Access::kWrite : Access::kRead);
}

void ProgramBuilder::send(const Task& task) {
  TANDEM_CHECK(sends(task), "the end of the pipeline has no next stage");
  p2p(task, Op::kSend);
}

void ProgramBuilder::receive(const Task& task) {
  TANDEM_CHECK(receives(task), "the start of the pipeline has no previous stage");
  p2p(task, Op::kRecv);
}

void ProgramBuilder::use_gradients(Instr& instr, int chunk) {
  const ChunkPlan& plan = options_.partition.at(program_.stage, chunk);
  use(instr, {SlotKind::kGrads, chunk, -1, -1}, Access::kAccumulate);
  if (plan.has_head) use(instr, {SlotKind::kGradsHead, chunk, -1, -1}, Access::kAccumulate);
  for (int layer = plan.layer_begin; layer < plan.layer_end; ++layer)
    if (moe(layer)) use(instr, {SlotKind::kGradsExperts, chunk, -1, layer}, Access::kAccumulate);
}

void ProgramBuilder::grad_sync(int chunk) {
  use_gradients(append(Op::kGradSync, Lane::kDp, Dir::kBwd, chunk, -1, -1), chunk);
}

void ProgramBuilder::opt_step() {
  Instr& instr = append(Op::kOptStep, Lane::kDp, Dir::kBwd, -1, -1, -1);
  for (int chunk = 0; chunk < program_.vpp; ++chunk) {
    use_gradients(instr, chunk);
    use(instr, {SlotKind::kParams, chunk, -1, -1}, Access::kWrite);
  }
}

}  // namespace tandem
