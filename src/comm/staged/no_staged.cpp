#include "../gpu_comms.h"
#include "tandem/base/error.h"

namespace tandem {

std::unique_ptr<Comm> make_staged_comm(std::unique_ptr<Transport> /*transport*/, std::string name) {
  throw_error(ExitCode::kUsage,
              "{}: this build has no CUDA, so it has no GPU memory to send; set train.device=cpu, "
              "or build with TANDEM_CUDA=ON",
              name);
}

}  // namespace tandem
