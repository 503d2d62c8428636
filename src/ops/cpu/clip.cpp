#include <algorithm>
#include <cmath>

#include "tandem/ops/cpu.h"

namespace tandem::cpu {

void run(const ops::ClipScale& op, Workers&) {
  const float norm = std::sqrt(op.square_sum.as<float>()[0]);
  op.norm.as<float>()[0] = norm;
  op.scale.as<float>()[0] = op.clip > 0.0F ? std::min(1.0F, op.clip / (norm + 1e-6F)) : 1.0F;
}

}  // namespace tandem::cpu
