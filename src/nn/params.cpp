#include "tandem/nn/params.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/ops/launch.h"

namespace tandem {
namespace {

std::string label(const char* what, const ParamBucket& bucket) {
  const char* group = bucket.group == ParamGroup::kDense ? "dense" : "expert";
  return std::string(what) + " of chunk " + std::to_string(bucket.chunk) + " (" + group + ")";
}

std::size_t bucket_index(const ParamTable& table, const Param& param) {
  for (std::size_t i = 0; i < table.buckets.size(); ++i) {
    if (table.buckets[i].chunk == param.chunk && table.buckets[i].group == param.group) return i;
  }
  throw_error(ExitCode::kInternal, "parameter {} lies in no bucket of this rank", param.name);
}

// A number that is 0 or normal and exact in a 16-bit dtype.
std::uint16_t exact_bits(float x, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (dtype == DType::kBF16 || x == 0.0F) return static_cast<std::uint16_t>(bits >> 16);
  constexpr std::uint32_t kRebias = (127U - 15U) << 23;  // fp16: 5 bits of exponent, 10 of fraction
  const std::uint32_t sign = bits & 0x80000000U;
  return static_cast<std::uint16_t>(sign >> 16 | ((bits ^ sign) - kRebias) >> 13);
}

// `fill` in the storage of `like`, in host memory. Norm weights are 1, exact in every dtype.
View flat_constant(float fill, const View& like, std::vector<std::byte>& host) {
  host.resize(like.bytes());
  View view{host.data(), like.dtype, like.size(), 1};
  if (like.dtype == DType::kF32)
    std::fill_n(view.as<float>(), like.size(), fill);
  else
    std::fill_n(view.as<std::uint16_t>(), like.size(), exact_bits(fill, like.dtype));
  return view;
}

// Enqueues the initial values of one parameter. Constants are short (norms) and come from `host`,
// which must live until the stream has passed.
void initialise(Device& device, Stream& stream, const Param& param, View value, std::uint64_t seed,
                std::vector<std::byte>& host) {
  const View flat{value.data, value.dtype, param.size(), 1};
  if (param.init_std != 0.0) {
    launch(stream, ops::InitNormal{flat, seed, stream_id(param.name.c_str()), param.global_begin,
                                   param.init_std});
    return;
  }
  const View staging = flat_constant(param.fill, flat, host);
  device.copy(stream, flat.data, staging.data, flat.bytes());
}

}  // namespace

Params::Params(Device& device, Stream& stream, ParamTable table, DType dtype, std::uint64_t seed)
    : table_(std::move(table)), dtype_(dtype) {
  // All memory before any work: an allocation that fails must not free what a stream is writing.
  for (const ParamBucket& bucket : table_.buckets) {
    const auto padded = static_cast<std::size_t>(bucket.padded);
    values_.push_back(device.alloc(padded * size_of(dtype), label("parameters", bucket)));
    grads_.push_back(device.alloc(padded * sizeof(float), label("gradients", bucket)));
  }
  std::vector<std::vector<std::byte>> constants(table_.params.size());
  for (const Buffer& values : values_) device.fill(stream, values.data(), 0, values.bytes());
  // All of them, once: the padding is never written again, and the optimizer reads it.
  for (const Buffer& grads : grads_) device.fill(stream, grads.data(), 0, grads.bytes());
  for (std::size_t i = 0; i < table_.params.size(); ++i) {
    const Param& param = table_.params[i];
    initialise(device, stream, param, value(param.kind, param.layer), seed, constants[i]);
  }
  // hazard: the fills above and the first use of the buffers on another stream
  stream.sync();
}

const Param& Params::get(ParamKind kind, int layer) const {
  const Param* param = table_.find(kind, layer);
  TANDEM_CHECK(param != nullptr, "parameter kind {} of layer {} is not on this rank",
               static_cast<int>(kind), layer);
  return *param;
}

View Params::value(ParamKind kind, int layer) const {
  const Param& param = get(kind, layer);
  const View part = bucket_values(bucket_index(table_, param)).slice(param.offset, param.size());
  return {part.data, part.dtype, param.rows, param.cols};
}

View Params::grad(ParamKind kind, int layer) const {
  const Param& param = get(kind, layer);
  const View part = bucket_grads(bucket_index(table_, param)).slice(param.offset, param.size());
  return {part.data, part.dtype, param.rows, param.cols};
}

View Params::bucket_values(std::size_t bucket) const {
  return {values_.at(bucket).data(), dtype_, table_.buckets[bucket].padded, 1};
}

View Params::bucket_grads(std::size_t bucket) const {
  return {grads_.at(bucket).data(), DType::kF32, table_.buckets[bucket].padded, 1};
}

void Params::zero_grads(Device& device, Stream& stream) {
  for (std::size_t i = 0; i < grads_.size(); ++i)
    if (table_.buckets[i].group != ParamGroup::kExpert)
      device.fill(stream, grads_[i].data(), 0, grads_[i].bytes());
}

void Params::poison_expert_grads(Device& device, Stream& stream) {
  for (const Param& param : table_.params) {
    if (param.group != ParamGroup::kExpert) continue;
    const View view = grad(param.kind, param.layer);
    device.fill(stream, view.data, kNanByte, view.bytes());
  }
}

}  // namespace tandem
