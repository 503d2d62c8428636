#include "step_losses.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr std::int64_t kTerms = 2;  // load-balancing term and z term of one layer

}  // namespace

bool is_counts(const Instr& instr) {
  return instr.op == Op::kRun && instr.node == NodeKind::kCounts;
}

StepLosses::StepLosses(Device& device, const Program& program, int layers)
    : device_(device), program_(program), layers_(layers) {
  const auto bytes = static_cast<std::size_t>(program.microbatches) * sizeof(float);
  loss_ = device.alloc(bytes, "losses");
  aux_ = device.alloc(bytes * static_cast<std::size_t>(kTerms * layers * program.vpp),
                      "auxiliary losses");
  host_loss_.resize(loss_.bytes() / sizeof(float));
  host_aux_.resize(aux_.bytes() / sizeof(float));
}

std::int64_t StepLosses::place(const Instr& instr) const {
  return ((std::int64_t{instr.chunk} * program_.microbatches + instr.microbatch) * layers_ +
          instr.layer) *
         kTerms;
}

View StepLosses::of_tokens(const Instr& instr) const {
  return View{loss_.data(), DType::kF32, program_.microbatches, 1}.slice(instr.microbatch, 1);
}

View StepLosses::of_router(const Instr& instr) const {
  if (instr.layer >= layers_) return {};
  return View{aux_.data(), DType::kF32, static_cast<std::int64_t>(host_aux_.size()), 1}.slice(
      place(instr), kTerms);
}

void StepLosses::clear(Stream& stream) {
  device_.fill(stream, loss_.data(), 0, loss_.bytes());
}

void StepLosses::read(Stream& stream) {
  device_.copy(stream, host_loss_.data(), loss_.data(), loss_.bytes());
  device_.copy(stream, host_aux_.data(), aux_.data(), aux_.bytes());
  // hazard: the two copies before the host reads them
  stream.sync();
}

double StepLosses::tokens() const {
  double sum = 0.0;
  for (const float loss : host_loss_) sum += static_cast<double>(loss);
  return sum;
}

double StepLosses::auxiliary(const ModelConfig& model, const ModelDims& dims) const {
  const auto tokens = static_cast<double>(dims.tokens);
  const auto experts = static_cast<double>(model.experts), topk = static_cast<double>(model.topk);
  int moe_layers = 0, last_layer = -1;
  for (const Instr& instr : program_.instrs) {
    if (!is_counts(instr)) continue;
    moe_layers += instr.microbatch == 0 ? 1 : 0;
    last_layer = std::max(last_layer, instr.layer);
  }
  const double balance =
      model.aux_loss == AuxLossKind::kPerLayer
          ? experts / (topk * tokens * tokens)
          : experts / (static_cast<double>(moe_layers) * moe_layers * tokens * tokens);
  double sum = 0.0;
  for (const Instr& instr : program_.instrs) {
    if (!is_counts(instr)) continue;
    const auto at = static_cast<std::size_t>(place(instr));
    // Pooled sums run over the layers: the last layer's value is the whole one.
    const bool whole = model.aux_loss == AuxLossKind::kPerLayer || instr.layer == last_layer;
    if (whole) sum += model.aux_loss_coef * balance * static_cast<double>(host_aux_[at]);
    sum += model.z_loss_coef / tokens * static_cast<double>(host_aux_[at + 1]);
  }
  return sum;
}

}  // namespace tandem
