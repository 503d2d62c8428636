#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/ops/cpu.h"

namespace tandem::cpu {

void run(const ops::ClipScale& op, Workers&) {
  const float norm = std::sqrt(op.square_sum.as<float>()[0]) / op.grad_factor;
  op.norm.as<float>()[0] = norm;
  const float scale = op.clip > 0.0F ? std::min(1.0F, op.clip / (norm + 1e-6F)) : 1.0F;
  op.scale.as<float>()[0] =
      std::isfinite(norm) ? scale / op.grad_factor : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace tandem::cpu
