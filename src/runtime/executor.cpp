#include "tandem/runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "step_losses.h"
#include "tandem/base/error.h"
#include "tandem/runtime/spans.h"

namespace tandem {
namespace {

bool needs_counts(const Instr& instr) {
  return instr.op == Op::kRun &&
         (instr.node == NodeKind::kDispatch || instr.node == NodeKind::kExperts ||
          instr.node == NodeKind::kCombine);
}

}  // namespace

struct Executor::State {
  State(RankState rank_state, const Program& p)
      : rank(rank_state),
        program(p),
        memory(rank.device, program, rank.dims, rank.config.model.qk_norm,
               rank.config.train.poison_memory),
        scratch(rank.device, std::string(name_of(Lane::kCompute))),
        ep_scratch(rank.device, std::string(name_of(Lane::kEp))),
        losses(rank.device, program, rank.config.model.layers),
        routing(static_cast<std::size_t>(program.vpp * program.microbatches *
                                         rank.config.model.layers)) {
    place_counts();
  }

  // Host memory for the counts of every layer of a step, one piece: nothing is allocated later.
  void place_counts() {
    const auto sent = static_cast<std::size_t>(rank.dims.experts);
    const auto received = static_cast<std::size_t>(rank.dims.ep * rank.dims.local_experts);
    const auto layers_of_step = static_cast<std::size_t>(
        std::count_if(program.instrs.begin(), program.instrs.end(), is_counts));
    host_counts = rank.device.alloc_host(layers_of_step * (sent + received) * sizeof(std::int32_t),
                                         "token counts");
    auto* next = host_counts.as<std::int32_t>();
    for (const Instr& instr : program.instrs) {
      if (!is_counts(instr)) continue;
      counts(instr).send = {next, sent};
      counts(instr).recv = {next + sent, received};
      next += sent + received;
    }
  }

  [[nodiscard]] int layers() const { return rank.config.model.layers; }

  // Host copies of one layer's counts, filled by the ep lane before HOST_WAIT returns.
  struct CountsCopy {
    std::span<std::int32_t> send, recv;  // in host_counts
    Routing known;
  };

  std::size_t key(const Instr& instr) const {
    return (static_cast<std::size_t>(instr.chunk) * static_cast<std::size_t>(program.microbatches) +
            static_cast<std::size_t>(instr.microbatch)) *
               static_cast<std::size_t>(layers()) +
           static_cast<std::size_t>(instr.layer);
  }
  CountsCopy& counts(const Instr& instr) { return routing[key(instr)]; }
  Comm& peer_comm(Lane lane) const {
    switch (lane) {
      case Lane::kSendFwd:
        return *rank.comms.send_fwd;
      case Lane::kRecvFwd:
        return *rank.comms.recv_fwd;
      case Lane::kSendBwd:
        return *rank.comms.send_bwd;
      default:
        return *rank.comms.recv_bwd;
    }
  }

  void bind(const Instr& instr, std::int64_t received);
  void run_one(const Instr& instr, const StepInput& input);
  void copy_counts(const Instr& instr, Stream& stream);
  void learn_counts(const Instr& instr);
  void transfer(const Instr& instr, Stream& stream);
  [[nodiscard]] bool holds_tied_copy(int chunk) const;
  void step(std::int32_t index, const StepInput& input);

  RankState rank;
  const Program& program;
  SlotMemory memory;
  ScratchArena scratch, ep_scratch;  // one per lane that runs nodes
  StepLosses losses;
  std::vector<CountsCopy> routing;  // by chunk, micro-batch, layer
  Buffer host_counts;
  std::vector<std::int64_t> load;
  std::vector<BoundSlot> bound;
  double aux = 0.0;  // of the last step
  NodeHook hook;
  Profiler* profiler = nullptr;
};

void Executor::State::bind(const Instr& instr, std::int64_t received) {
  bound.clear();
  for (std::size_t i = 0; i < instr.uses.size(); ++i)
    bound.push_back(memory.bind(rank.lanes.stream(instr.lane), instr, i, received));
}

void Executor::State::run_one(const Instr& instr, const StepInput& input) {
  Stream& stream = rank.lanes.stream(instr.lane);
  const Routing* known = needs_counts(instr) ? &counts(instr).known : nullptr;
  bind(instr, known != nullptr ? known->received : 0);
  ScratchArena& lane_scratch = instr.lane == Lane::kEp ? ep_scratch : scratch;
  lane_scratch.next_node();
  const auto microbatch = static_cast<std::size_t>(instr.microbatch);
  const NodeCtx ctx{.device = rank.device,
                    .stream = stream,
                    .model = rank.config.model,
                    .dims = rank.dims,
                    .params = rank.params,
                    .scratch = lane_scratch,
                    .ep = rank.comms.ep.get(),
                    .slots = bound,
                    .batch = input.batches[microbatch],
                    .routing = known,
                    .layer = instr.layer,
                    .moe = instr.moe,
                    .training = input.training,
                    .loss_scale = input.loss_scale * input.grad_factor,
                    .aux_scale = input.aux_scale * input.grad_factor,
                    .loss = losses.of_tokens(instr),
                    .aux = losses.of_router(instr),
                    .alltoall_delay_us = rank.config.train.alltoall_delay_us,
                    .loss_chunk = rank.config.train.loss_chunk_tokens};
  run_node(instr.node, instr.phase, ctx);
  if (instr.node == NodeKind::kCounts) copy_counts(instr, stream);
  memory.release(stream, instr);
}

// The host learns the counts from copies made in stream order behind the counts node, so the event
// HOST_WAIT waits for covers them too.
void Executor::State::copy_counts(const Instr& instr, Stream& stream) {
  CountsCopy& copy = counts(instr);
  for (const BoundSlot& slot : bound) {
    const auto to = slot.kind == SlotKind::kCountsSend ? copy.send : copy.recv;
    rank.device.copy(stream, to.data(), slot.data, to.size_bytes());
  }
}

void Executor::State::learn_counts(const Instr& instr) {
  const double begin = rank.device.now_us();
  // hazard: the ep lane's copy of the counts before the host reads them
  rank.device.host_wait(rank.lanes.event(instr.event));
  CountsCopy& copy = counts(instr);
  copy.known.send_counts.assign(copy.send.begin(), copy.send.end());
  copy.known.recv_counts.assign(copy.recv.begin(), copy.recv.end());
  copy.known.sum_received(rank.dims.local_experts);
  for (std::size_t e = 0; e < copy.send.size(); ++e)
    load[static_cast<std::size_t>(instr.layer) * copy.send.size() + e] += copy.send[e];
  const auto index = static_cast<std::int32_t>(&instr - program.instrs.data());
  rank.timeline.host_wait(begin, rank.device.now_us(), index);
}

void Executor::State::transfer(const Instr& instr, Stream& stream) {
  bind(instr, 0);
  const SlotLayout layout = slot_layout(bound[0].kind, rank.dims, rank.config.model.qk_norm, 0);
  const SlotTensor& tensor = layout.tensors[0];
  const View view{bound[0].data, tensor.dtype, tensor.rows, tensor.cols};
  constexpr int kSender = 0, kReceiver = 1;  // members of an edge's communicator
  if (instr.op == Op::kSend)
    peer_comm(instr.lane).send(stream, view, kReceiver);
  else
    peer_comm(instr.lane).recv(stream, view, kSender);
  memory.release(stream, instr);
}

bool Executor::State::holds_tied_copy(int chunk) const {
  const auto& params = rank.params.table().params;
  return rank.config.model.tied_embeddings &&
         std::any_of(params.begin(), params.end(), [chunk](const Param& param) {
           const bool copy = param.kind == ParamKind::kEmbedding || param.kind == ParamKind::kHead;
           return copy && param.chunk == chunk;
         });
}

void Executor::State::step(std::int32_t index, const StepInput& input) {
  const Instr& instr = program.instrs[static_cast<std::size_t>(index)];
  rank.timeline.host_at(index);
  std::optional<ProfilerRange> range;
  if (profiler != nullptr && instr.op != Op::kWait && instr.op != Op::kRecord)
    range.emplace(profiler, range_name(instr), range_category(instr));
  if (instr.op == Op::kHostWait) return learn_counts(instr);

  Stream& stream = rank.lanes.stream(instr.lane);
  // hazard: whatever conflict of slots place_events put this wait in front of
  if (instr.op == Op::kWait) return stream.wait(rank.lanes.event(instr.event));
  if (instr.op == Op::kRecord) return stream.record(rank.lanes.event(instr.event));

  rank.timeline.begin(stream, instr.lane, index);
  switch (instr.op) {
    case Op::kRun:
      run_one(instr, input);
      break;
    case Op::kSend:
    case Op::kRecv:
      transfer(instr, stream);
      break;
    case Op::kGradSync:
      // At most one chunk of a rank does: without pipeline stages there is one chunk.
      if (holds_tied_copy(instr.chunk)) rank.optimizer.sync_tied(stream);
      rank.optimizer.sync_grads(stream, instr.chunk);
      break;
    case Op::kOptStep:
      rank.optimizer.apply(stream, input.lr, input.step, input.grad_factor);
      break;
    default:
      TANDEM_CHECK(false, "{} is not for a lane", name_of(instr.op));
  }
  rank.timeline.end(stream, instr.lane);
  if (hook && instr.op == Op::kRun) {
    // hazard: the node's writes before the hook reads them. Other lanes run on: they may be waiting
    // for a peer that waits for this rank.
    stream.sync();
    hook(instr, bound);
  }
}

Executor::Executor(RankState state, const Program& program)
    : state_(std::make_unique<State>(state, program)) {}

Executor::~Executor() = default;

void Executor::run(const StepInput& input) {
  State& s = *state_;
  Stream& compute = s.rank.lanes.stream(Lane::kCompute);
  s.rank.timeline.start(s.program);
  s.load.assign(
      static_cast<std::size_t>(s.layers()) * static_cast<std::size_t>(s.rank.dims.experts), 0);
  s.losses.clear(compute);
  if (input.training) {
    s.rank.params.zero_grads(s.rank.device, compute);
    if (s.rank.config.train.poison_memory)
      s.rank.params.poison_expert_grads(s.rank.device, compute);
  }
  for (std::size_t i = 0; i < s.program.instrs.size(); ++i)
    s.step(static_cast<std::int32_t>(i), input);
  s.rank.lanes.sync_all();
  s.memory.collect();
  s.scratch.collect();
  s.ep_scratch.collect();
  s.losses.read(compute);
  s.aux =
      s.losses.auxiliary(s.rank.config.model, s.rank.dims) * static_cast<double>(input.aux_scale);
}

double Executor::loss_sum() const {
  return state_->losses.tokens();
}

double Executor::aux_loss() const {
  return state_->aux;
}
const std::vector<std::int64_t>& Executor::expert_load() const {
  return state_->load;
}
const SlotMemory& Executor::memory() const {
  return state_->memory;
}
std::size_t Executor::scratch_bytes() const {
  return state_->scratch.bytes() + state_->ep_scratch.bytes();
}
void Executor::set_hook(NodeHook hook) {
  state_->hook = std::move(hook);
}
void Executor::set_profiler(Profiler* profiler) {
  state_->profiler = profiler;
}

}  // namespace tandem
