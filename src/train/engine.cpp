#include "engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory_check.h"
#include "non_finite.h"
#include "tandem/base/error.h"
#include "tandem/base/units.h"
#include "tandem/comm/shared_error.h"
#include "tandem/config/load.h"
#include "tandem/model/slot.h"
#include "tandem/runtime/rehearsal.h"
#include "tandem/schedule/check.h"
#include "tandem/train/device_choice.h"
#include "tandem/train/host_share.h"

namespace tandem {
namespace {

// Ranks started with different configs or binaries would hang in their first collective.
void require_equal_everywhere(World& world, const RunConfig& config,
                              const std::vector<Program>& programs) {
  std::string mine = to_json(config);
  for (const Program& program : programs) mine += fmt::format("{:016x}", hash_of(program));
  const auto all = world.gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw_shared(
          ExitCode::kUsage,
          "rank {} was started with another config or program than rank 0: give every rank "
          "the same file, overrides and binary",
          rank);
}

RunConfig evaluation_config(RunConfig config) {
  config.train.global_batch =
      config.train.eval_batches * config.train.micro_batch * config.parallel.dp;
  return config;
}

bool needs_tokens(const Partition& partition, int stage) {
  for (int chunk = 0; chunk < partition.vpp; ++chunk)
    if (partition.at(stage, chunk).has_embedding || partition.at(stage, chunk).has_head)
      return true;
  return false;
}

bool all_finite(DType dtype, const std::vector<std::byte>& bytes) {
  if (dtype == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    return std::all_of(values, values + bytes.size() / sizeof(float),
                       [](float x) { return std::isfinite(x); });
  }
  if (dtype == DType::kBF16 || dtype == DType::kF16) {
    // Exponent bits all ones: infinity or NaN.
    const unsigned exponent = dtype == DType::kF16 ? 0x7C00U : 0x7F80U;
    const auto* values = reinterpret_cast<const std::uint16_t*>(bytes.data());
    return std::all_of(values, values + bytes.size() / sizeof(std::uint16_t),
                       [exponent](std::uint16_t x) { return (x & exponent) != exponent; });
  }
  return true;
}

// Reads the tensor back on `stream`, on which it was written.
bool all_finite(Device& device, Stream& stream, const View& view) {
  std::vector<std::byte> bytes(view.bytes());
  device.copy(stream, bytes.data(), view.data, bytes.size());
  // hazard: the copy before the host looks at it
  stream.sync();
  return all_finite(view.dtype, bytes);
}

BatchSources open_sources(World& world, const RunConfig& config) {
  const double share = host_bytes_of_rank(world);
  return together(world, [&] { return open_data(config, share); });
}

// The table, once it is known that what it and the program need is there.
ParamTable fitting(ParamTable table, World& world, const Device& device, const RunConfig& config,
                   const Program& program) {
  require_memory(world, device, config, table, program);
  return table;
}

// The rank, rehearsed. Before the first executor: rehearsing takes memory of its own. Evaluation's
// nodes are some of those of training, in the same shapes.
RankState rehearsed(const RankState& rank, const Program& training) {
  rehearse(rank, training);
  return rank;
}

// "layer 3, "; nothing for embedding and head, which belong to no layer.
std::string layer_of(const Instr& instr) {
  if (instr.node == NodeKind::kEmbedding || instr.node == NodeKind::kHead) return "";
  return fmt::format("layer {}, ", instr.layer);
}

}  // namespace

std::vector<Program> sound_programs(const RunConfig& config, ProgramKind kind) {
  std::vector<Program> programs = build_programs(lower_options(config), kind);
  const CheckReport report = check_programs(programs);
  if (!report.ok())
    throw_error(ExitCode::kInternal, "the {} program is unsound, {}; first: stage {}: {}",
                kind == ProgramKind::kTraining ? "training" : "evaluation",
                counted(report.total_findings, "finding"), report.findings[0].stage,
                report.findings[0].what);
  return programs;
}

Engine::Engine(World& w, const RunConfig& c, std::vector<Program> programs, Log& log)
    : world(w),
      config(c),
      grid(make_grid(config)),
      partition(make_partition(config)),
      stage_(static_cast<std::size_t>(grid.place(world.rank()).pp)),
      programs_(std::move(programs)),
      device(open_device(world, config.train, log)),
      data(open_sources(world, config)),
      lanes(*device, grid.pp),
      comms(make_rank_comms(world, grid, config.model.tied_embeddings,
                            choose_comm(world, config, *device, log))),
      params(*device, lanes.stream(Lane::kCompute),
             fitting(make_params(config, grid, partition, world.rank()), world, *device, config,
                     programs_[stage_]),
             config.train.dtype, config.train.seed),
      optimizer(*device, lanes.stream(Lane::kDp), params, config.optimizer,
                config.model.tied_embeddings, comms.optimizer()),
      loss_scaler(config.optimizer, config.train.dtype),
      timeline(*device),
      executor_(
          rehearsed({config, make_dims(config), *device, lanes, comms, params, optimizer, timeline},
                    programs_[stage_]),
          programs_[stage_]),
      batches_(*device, config, config.microbatches(),
               needs_tokens(partition, static_cast<int>(stage_))),
      evaluation_batches_(*device, config, config.train.eval_batches,
                          needs_tokens(partition, static_cast<int>(stage_))) {
  if (config.train.alltoall_delay_us > 0.0) {
    device->delay(lanes.stream(Lane::kEp), 0.0);  // its first use may wait for every lane
    lanes.sync_all();
  }
  require_equal_everywhere(world, config, programs_);
}

// Data that cannot be read is met by some ranks alone, often by the first and last stage at once:
// it is told before any lane begins, so that all ranks end alike.
std::span<const BatchView> Engine::load(BatchLoader& loader, BatchSource& source,
                                        const std::vector<std::int64_t>& first) {
  return together(world, [&] { return loader.load(lanes.stream(Lane::kCompute), source, first); });
}

StepInput Engine::step_input(std::int64_t step, double lr) {
  std::vector<std::int64_t> first;
  for (int m = 0; m < config.microbatches(); ++m)
    first.push_back(first_sample(config, step, m, grid.place(world.rank()).dp));
  StepInput input;
  input.batches = load(batches_, *data.train, first);
  input.loss_scale = static_cast<float>(
      1.0 / (static_cast<double>(config.train.global_batch) * config.train.seq_len));
  input.aux_scale = static_cast<float>(1.0 / (config.microbatches() * config.parallel.dp));
  input.grad_factor = static_cast<float>(loss_scaler.scale());
  input.lr = lr;
  input.step = step + 1 - loss_scaler.skipped();
  return input;
}

Engine::StepResult Engine::train_step(const StepInput& input) {
  executor_.run(input);
  float norm = 0.0F;
  Stream& stream = lanes.stream(Lane::kDp);
  device->copy(stream, &norm, optimizer.grad_norm().data, sizeof(norm));
  // hazard: the copy of the norm before the host reads it
  stream.sync();
  return {executor_.loss_sum(), executor_.aux_loss(), static_cast<double>(norm)};
}

void Engine::prepare_evaluation() {
  if (evaluator_) return;
  evaluation_ = sound_programs(evaluation_config(config), ProgramKind::kEvaluation)[stage_];
  evaluator_ = std::make_unique<Executor>(
      RankState{config, make_dims(config), *device, lanes, comms, params, optimizer, timeline},
      evaluation_);
}

double Engine::evaluate() {
  TANDEM_CHECK(evaluator_ != nullptr, "an evaluation that was not prepared");
  const RunConfig held_out = evaluation_config(config);
  std::vector<std::int64_t> first;
  for (int m = 0; m < config.train.eval_batches; ++m)
    first.push_back(first_sample(held_out, 0, m, grid.place(world.rank()).dp));
  StepInput input;
  input.training = false;
  input.batches = load(evaluation_batches_, *data.valid, first);
  evaluator_->run(input);
  timeline.harvest();
  const double tokens = static_cast<double>(held_out.train.global_batch) * config.train.seq_len;
  return world.sum(evaluator_->loss_sum()) / tokens;
}

std::string Engine::find_non_finite_parameter() {
  for (const Param& param : params.table().params)
    if (!all_finite(*device, lanes.stream(Lane::kCompute), params.value(param.kind, param.layer)))
      return fmt::format("{}{}", kParameterPlace, param.name);
  return "";
}

std::string Engine::find_non_finite(std::int64_t step) {
  // A step takes all ranks: it runs again only if no rank has its answer already.
  std::string found = find_non_finite_parameter();
  for (const std::string& of_rank : world.gather(found))
    if (!of_rank.empty()) return found;
  const ModelDims dims = make_dims(config);
  executor_.set_hook([&](const Instr& instr, std::span<const BoundSlot> slots) {
    if (!found.empty()) return;
    for (const BoundSlot& slot : slots) {
      if (slot.access != Access::kWrite || slot.data == nullptr) continue;
      if (slot.kind == SlotKind::kPooledLoad && config.model.aux_loss != AuxLossKind::kPooled)
        continue;  // then nobody writes it
      const SlotLayout layout = slot_layout(slot.kind, dims, config.model.qk_norm, slot.received);
      for (const SlotTensor& tensor : layout.tensors)
        if (!all_finite(*device, lanes.stream(instr.lane),
                        {slot.data + tensor.offset, tensor.dtype, tensor.rows, tensor.cols}))
          found =
              fmt::format("{}{}_{}, {}.{}, micro-batch {}", layer_of(instr), name_of(instr.node),
                          name_of(instr.phase), name_of(slot.kind), tensor.name, instr.microbatch);
    }
  });
  executor_.run(step_input(step, 0.0));
  executor_.set_hook({});
  timeline.harvest();
  return found;
}

void Engine::drain() noexcept {
  for (int lane = 0; lane < kNumLanes; ++lane) {
    try {
      // hazard: work still enqueued before the memory it uses is freed
      lanes.stream(static_cast<Lane>(lane)).sync();
    } catch (const std::exception&) {  // lanes that do not exist, and the poison already reported
      continue;
    }
  }
}

std::int64_t Engine::memory_bytes() const {
  return static_cast<std::int64_t>(device->memory().peak);
}

}  // namespace tandem
