// A build without the CUDA toolkit.
#include "tandem/base/error.h"
#include "tandem/device/device.h"

namespace tandem {

std::unique_ptr<Device> make_cuda_device(const CudaOptions& /*options*/) {
  throw_error(
      ExitCode::kUsage,
      "this build has no CUDA backend: with the CUDA toolkit installed configure with "
      "-DTANDEM_CUDA=ON (docs/GPUS.md), or set train.device=cpu");
}

int visible_cuda_devices() {
  return 0;
}

}  // namespace tandem
