// A build without the CUDA toolkit.
#include "tandem/base/error.h"
#include "tandem/device/device.h"

namespace tandem {

std::unique_ptr<Device> make_cuda_device(const CudaOptions& /*options*/) {
  throw_error(
      ExitCode::kUsage,
      "this build has no CUDA backend: install the CUDA toolkit and configure again, or set "
      "train.device=cpu");
}

int visible_cuda_devices() {
  return 0;
}

}  // namespace tandem
