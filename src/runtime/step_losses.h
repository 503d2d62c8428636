// The losses of one step: nodes add to them on the device, the host reads them at its end. Private
// to the executor.
#pragma once

#include <vector>

#include "tandem/config/config.h"
#include "tandem/device/device.h"
#include "tandem/model/slot.h"
#include "tandem/schedule/program.h"

namespace tandem {

// True for the node whose layer and micro-batch have a router.
bool is_counts(const Instr& instr);

class StepLosses {
 public:
  StepLosses(Device& device, const Program& program, int layers);

  // f32 [1]: sum of token losses of the instruction's micro-batch.
  [[nodiscard]] View of_tokens(const Instr& instr) const;
  // f32 [2]: what ops::RouterLoss writes for its chunk, micro-batch and layer; null data where
  // there is no such layer.
  [[nodiscard]] View of_router(const Instr& instr) const;

  void clear(Stream& stream);  // the sums of tokens; the others are written, not added to
  void read(Stream& stream);   // blocks

  // Of what was read last: the sum of all token losses, and the weighted auxiliary losses of this
  // rank's layers, summed over its micro-batches.
  [[nodiscard]] double tokens() const;
  [[nodiscard]] double auxiliary(const ModelConfig& model, const ModelDims& dims) const;

 private:
  [[nodiscard]] std::int64_t place(const Instr& instr) const;

  Device& device_;
  const Program& program_;
  const int layers_;
  Buffer loss_, aux_;
  std::vector<float> host_loss_, host_aux_;
};

}  // namespace tandem
