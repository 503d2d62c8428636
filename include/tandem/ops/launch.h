// launch(stream, op): enqueue one op on whatever device the stream belongs to, or put it on an op
// list. A CUDA kernel that is missing is a link error that names the op.
#pragma once

#include "tandem/base/build_config.h"
#include "tandem/base/error.h"
#include "tandem/device/cpu_stream.h"
#include "tandem/device/cuda_stream.h"
#include "tandem/ops/cpu.h"
#include "tandem/ops/cuda.h"
#include "tandem/ops/op_list.h"
#include "tandem/ops/ops.h"

namespace tandem {

template <class Op>
void launch(Stream& stream, const Op& op) {
  if constexpr (kHasCuda) {
    if (auto* cuda_stream = dynamic_cast<CudaStream*>(&stream)) return cuda::run(op, *cuda_stream);
  }
  auto* cpu_stream = dynamic_cast<CpuStream*>(&stream);
  if (auto* list = cpu_stream == nullptr ? dynamic_cast<OpList*>(&stream) : nullptr)
    return list->add({ops::cost(op), [op](Stream& real) { launch(real, op); }});
  TANDEM_CHECK(cpu_stream != nullptr, "stream {} has no backend in this build", stream.name());
  cpu_stream->call([op, cpu_stream] { cpu::run(op, cpu_stream->workers()); });
}

}  // namespace tandem
