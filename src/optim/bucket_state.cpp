#include "bucket_state.h"

#include <algorithm>
#include <string>

#include "tandem/base/error.h"
#include "tandem/ops/launch.h"

namespace tandem {
namespace {

View f32_view(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return View{buffer.data(), DType::kF32, begin + count, 1}.slice(begin, count);
}

std::size_t f32_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

View flat(View view, std::int64_t begin, std::int64_t count) {
  return View{view.data, view.dtype, view.size(), 1}.slice(begin, count);
}

void convert(Device& device, Stream& stream, View from, View to) {
  if (from.dtype == to.dtype) {
    device.copy(stream, to.data, from.data, from.bytes());
  } else {
    launch(stream, ops::Cast{from, to});
  }
}

BucketState::BucketState(Device& device, const Params& params, std::size_t bucket, Comm* comm,
                         bool tied)
    : comm_(comm),
      all_grads_(params.bucket_grads(bucket)),
      all_values_(params.bucket_values(bucket)) {
  const ParamBucket& description = params.table().buckets[bucket];
  chunk_ = description.chunk;
  group_ = description.group;
  const int members = comm == nullptr ? 1 : comm->size();
  TANDEM_CHECK(members == description.members, "bucket of chunk {}: wrong communicator {}", chunk_,
               comm == nullptr ? std::string("(none)") : comm->name());

  const std::int64_t count = description.padded / members;
  const std::int64_t begin = comm == nullptr ? 0 : count * comm->rank();
  const std::string name = "optimizer state of chunk " + std::to_string(chunk_);
  state_ = device.alloc(f32_bytes(3 * count), name);
  shard_ = {bucket,
            begin,
            count,
            f32_view(state_, 0, count),
            f32_view(state_, count, count),
            f32_view(state_, 2 * count, count)};
  grads_ = flat(all_grads_, begin, count);
  values_ = flat(all_values_, begin, count);
  if (shared()) {
    own_grads_ = device.alloc(f32_bytes(count), name);
    own_values_ = device.alloc(values_.bytes(), name);
    grads_ = f32_view(own_grads_, 0, count);
    values_.data = own_values_.data();
  }
  cut_pieces(params.table(), tied);
}

void BucketState::initialise(Device& device, Stream& stream) {
  device.fill(stream, state_.data(), 0, state_.bytes());
  convert(device, stream, flat(all_values_, shard_.begin, shard_.count), shard_.master);
  // What is gathered when the very first step is skipped; padding travels too.
  if (shared()) convert(device, stream, flat(all_values_, shard_.begin, shard_.count), values_);
}

void BucketState::cut_pieces(const ParamTable& table, bool tied) {
  for (const Param& param : table.params) {
    if (param.chunk != chunk_ || param.group != group_) continue;
    const std::int64_t begin = std::max(param.offset, shard_.begin);
    const std::int64_t end = std::min(param.offset + param.size(), shard_.begin + shard_.count);
    if (begin >= end) continue;
    const bool second_copy = tied && param.kind == ParamKind::kHead;
    pieces_.push_back({begin - shard_.begin, end - begin, param.decay, !second_copy});
  }
}

void BucketState::reduce_scatter(Stream& stream) {
  if (shared()) comm_->reduce_scatter(stream, all_grads_, grads_);
}

std::int64_t BucketState::square_sums(Stream& stream, View partials) const {
  std::int64_t written = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.counted) continue;
    launch(stream,
           ops::SquareSum{flat(grads_, piece.begin, piece.count), flat(partials, written++, 1)});
  }
  return written;
}

void BucketState::update(Stream& stream, const OptimizerConfig& config, View grad_scale, double lr,
                         std::int64_t step) const {
  for (const Piece& piece : pieces_) {
    launch(stream,
           ops::AdamW{.master = flat(shard_.master, piece.begin, piece.count),
                      .m = flat(shard_.m, piece.begin, piece.count),
                      .v = flat(shard_.v, piece.begin, piece.count),
                      .grad = flat(grads_, piece.begin, piece.count),
                      .param = flat(values_, piece.begin, piece.count),
                      .grad_scale = grad_scale,
                      .lr = static_cast<float>(lr),
                      .beta1 = static_cast<float>(config.beta1),
                      .beta2 = static_cast<float>(config.beta2),
                      .eps = static_cast<float>(config.eps),
                      .weight_decay = piece.decay ? static_cast<float>(config.weight_decay) : 0.0F,
                      .step = step});
  }
}

void BucketState::publish(Device& device, Stream& stream) {
  convert(device, stream, shard_.master, values_);
}

void BucketState::all_gather(Stream& stream) {
  if (shared()) comm_->all_gather(stream, values_, all_values_);
}

}  // namespace tandem
