// Params: the parameters and gradients of one rank in device memory, one flat buffer per bucket.
#pragma once

#include <vector>

#include "tandem/device/device.h"
#include "tandem/model/params.h"

namespace tandem {

class Params {
 public:
  // Allocates every bucket (padded length), values and fp32 gradients, and fills the values with
  // their initialisation. Blocking.
  Params(Device& device, Stream& stream, ParamTable table, DType dtype, std::uint64_t seed);

  [[nodiscard]] const ParamTable& table() const { return table_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] View value(ParamKind kind, int layer) const;   // [rows, cols] dtype
  [[nodiscard]] View grad(ParamKind kind, int layer) const;    // [rows, cols] f32
  [[nodiscard]] View bucket_values(std::size_t bucket) const;  // [padded] dtype
  [[nodiscard]] View bucket_grads(std::size_t bucket) const;   // [padded] f32

  // Before a step adds to them. Gradients of experts are left out: the first micro-batch stores
  // them (SlotKind::kGradsExperts), which saves a pass over the bulk of all gradients.
  void zero_grads(Device& device, Stream& stream);
  // Makes those of experts NaN, so that whoever reads them before that store is noticed.
  void poison_expert_grads(Device& device, Stream& stream);

 private:
  [[nodiscard]] const Param& get(ParamKind kind, int layer) const;
  ParamTable table_;
  DType dtype_;
  std::vector<Buffer> values_, grads_;
};

}  // namespace tandem
