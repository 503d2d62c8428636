#include "tandem/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "bucket_state.h"
#include "tandem/base/error.h"
#include "tandem/ops/launch.h"

namespace tandem {
namespace {

// Device scalars of the gradient norm, one f32 each; the partial sums lie behind them.
enum Scalar : std::int64_t { kDenseSquares, kExpertSquares, kSquares, kNorm, kScale, kNumScalars };

void reduce_over(Stream& stream, Comm* comm, View value) {
  if (comm != nullptr && comm->size() > 1) comm->all_reduce(stream, value, ReduceOp::kSum);
}

}  // namespace

struct Optimizer::State {
  Device& device;
  Params& params;
  OptimizerConfig config;
  bool tied;
  OptimizerComms comms;
  std::vector<BucketState> buckets;
  std::vector<OptimizerShard> shards;
  std::int64_t num_partials = 0;
  Buffer scalars;

  [[nodiscard]] View scalar(std::int64_t index, std::int64_t count = 1) const {
    return View{scalars.data(), DType::kF32, kNumScalars + num_partials, 1}.slice(index, count);
  }
  void sum_squares(Stream& stream) const;
  void clip_coefficient(Stream& stream, float grad_factor) const;
};

Optimizer::Optimizer(Device& device, Stream& stream, Params& params, const OptimizerConfig& config,
                     bool tied_embeddings, const OptimizerComms& comms)
    : state_(std::make_unique<State>(
          State{device, params, config, tied_embeddings, comms, {}, {}, 0, {}})) {
  State& s = *state_;
  for (std::size_t i = 0; i < params.table().buckets.size(); ++i) {
    const bool dense = params.table().buckets[i].group == ParamGroup::kDense;
    s.buckets.emplace_back(device, params, i, dense ? comms.dense : comms.expert, tied_embeddings);
    s.shards.push_back(s.buckets.back().shard());
    s.num_partials += static_cast<std::int64_t>(s.buckets.back().pieces().size());
  }
  const std::int64_t floats = kNumScalars + s.num_partials;
  s.scalars = device.alloc(static_cast<std::size_t>(floats) * sizeof(float), "gradient norm");
  for (BucketState& bucket : s.buckets) bucket.initialise(device, stream);
  device.fill(stream, s.scalars.data(), 0, s.scalars.bytes());
  // hazard: the writes of the state above and its first use on another stream
  stream.sync();
}

Optimizer::~Optimizer() = default;

void Optimizer::sync_tied(Stream& stream) {
  const State& s = *state_;
  if (!s.tied) return;
  const bool first = s.params.table().find(ParamKind::kEmbedding, -1) != nullptr;
  const bool last = s.params.table().find(ParamKind::kHead, -1) != nullptr;
  if (first && last) {
    const View to = s.params.grad(ParamKind::kEmbedding, -1);
    const View from = s.params.grad(ParamKind::kHead, -1);
    launch(stream, ops::AddTo{from, to});
    s.device.copy(stream, from.data, to.data, to.bytes());
  } else if (first || last) {
    TANDEM_CHECK(s.comms.tied != nullptr, "tied embeddings on two stages need a communicator");
    const View grad = s.params.grad(first ? ParamKind::kEmbedding : ParamKind::kHead, -1);
    s.comms.tied->all_reduce(stream, grad, ReduceOp::kSum);
  }
}

void Optimizer::sync_grads(Stream& stream, int chunk) {
  for (BucketState& bucket : state_->buckets) {
    if (bucket.chunk() == chunk) bucket.reduce_scatter(stream);
  }
}

// Expert slices of one (ep, edp) group and dense slices of one dp group are disjoint, and every
// stage holds its own parameters: so three sums count each parameter once.
void Optimizer::State::sum_squares(Stream& stream) const {
  device.fill(stream, scalar(0).data, 0, kNumScalars * sizeof(float));
  std::int64_t next = kNumScalars;
  for (const BucketState& bucket : buckets) {
    const auto room = static_cast<std::int64_t>(bucket.pieces().size());
    const View partials = scalar(next, room);
    const std::int64_t written = bucket.square_sums(stream, partials);
    const bool dense = bucket.group() == ParamGroup::kDense;
    launch(stream,
           ops::Sum{partials.slice(0, written), scalar(dense ? kDenseSquares : kExpertSquares)});
    next += room;
  }
  reduce_over(stream, comms.dense, scalar(kDenseSquares));
  reduce_over(stream, comms.expert, scalar(kExpertSquares));
  reduce_over(stream, comms.experts, scalar(kExpertSquares));
  launch(stream, ops::Sum{scalar(kDenseSquares, 2), scalar(kSquares)});
  reduce_over(stream, comms.stages, scalar(kSquares));
}

void Optimizer::State::clip_coefficient(Stream& stream, float grad_factor) const {
  launch(stream, ops::ClipScale{.square_sum = scalar(kSquares),
                                .norm = scalar(kNorm),
                                .scale = scalar(kScale),
                                .clip = static_cast<float>(config.clip),
                                .grad_factor = grad_factor});
}

void Optimizer::apply(Stream& stream, double lr, std::int64_t step, float grad_factor) {
  const State& s = *state_;
  s.sum_squares(stream);
  s.clip_coefficient(stream, grad_factor);
  for (const BucketState& bucket : s.buckets)
    bucket.update(stream, s.config, s.scalar(kScale), lr, step);
  for (BucketState& bucket : state_->buckets) bucket.all_gather(stream);
}

View Optimizer::grad_norm() const {
  return state_->scalar(kNorm);
}

const std::vector<OptimizerShard>& Optimizer::shards() const {
  return state_->shards;
}

void Optimizer::publish(Stream& stream) {
  for (BucketState& bucket : state_->buckets) {
    bucket.publish(state_->device, stream);
    bucket.all_gather(stream);
  }
}

}  // namespace tandem
