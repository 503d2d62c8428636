#include "tandem/nn/params.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/ops/launch.h"

namespace tandem {
namespace {

constexpr std::int64_t kInitPiece = std::int64_t{1} << 20;  // elements initialised at a time

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

// Writes initial values through an fp32 staging area, a piece at a time.
class Initialiser {
 public:
  Initialiser(Device& device, Stream& stream, std::uint64_t seed, std::int64_t piece)
      : device_(device),
        stream_(stream),
        seed_(seed),
        host_(static_cast<std::size_t>(piece)),
        staging_(device.alloc(host_.size() * sizeof(float), "parameter initialisation")) {}

  void fill(const Param& param, View value) {
    const std::int64_t size = param.size();
    const View flat{value.data, value.dtype, size, 1};
    for (std::int64_t begin = 0; begin < size; begin += piece()) {
      const std::int64_t count = std::min(piece(), size - begin);
      init_values(param, seed_, param.global_begin + begin, count, host_.data());
      write(flat.slice(begin, count));
      // hazard: the copy from host_ above and the next init_values into it
      stream_.sync();
    }
  }

 private:
  [[nodiscard]] std::int64_t piece() const { return static_cast<std::int64_t>(host_.size()); }

  void write(View to) {
    const std::size_t bytes = static_cast<std::size_t>(to.size()) * sizeof(float);
    if (to.dtype == DType::kF32) {
      device_.copy(stream_, to.data, host_.data(), bytes);
      return;
    }
    device_.copy(stream_, staging_.data(), host_.data(), bytes);
    launch(stream_, ops::Cast{{staging_.data(), DType::kF32, to.rows, 1}, to});
  }

  Device& device_;
  Stream& stream_;
  std::uint64_t seed_;
  std::vector<float> host_;
  Buffer staging_;
};

}  // namespace

Params::Params(Device& device, Stream& stream, ParamTable table, DType dtype, std::uint64_t seed)
    : table_(std::move(table)), dtype_(dtype) {
  // All memory before any work: an allocation that fails must not free what a stream is writing.
  for (const ParamBucket& bucket : table_.buckets) {
    const auto padded = static_cast<std::size_t>(bucket.padded);
    values_.push_back(device.alloc(padded * size_of(dtype), label("parameters", bucket)));
    grads_.push_back(device.alloc(padded * sizeof(float), label("gradients", bucket)));
  }
  std::int64_t largest = 1;
  for (const Param& param : table_.params) largest = std::max(largest, param.size());
  Initialiser initialiser(device, stream, seed, std::min(largest, kInitPiece));

  for (const Buffer& values : values_) device.fill(stream, values.data(), 0, values.bytes());
  zero_grads(device, stream);
  for (const Param& param : table_.params) initialiser.fill(param, value(param.kind, param.layer));
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
  for (const Buffer& grads : grads_) device.fill(stream, grads.data(), 0, grads.bytes());
}

}  // namespace tandem
