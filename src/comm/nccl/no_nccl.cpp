#include "../gpu_comms.h"
#include "tandem/base/error.h"

namespace tandem {

std::unique_ptr<Comm> make_nccl_comm(Transport& /*transport*/, std::string name,
                                     const CommOptions& /*options*/, AbortState& /*abort*/) {
  throw_error(ExitCode::kUsage,
              "{}: this build has no NCCL; set train.comm=staged, or install NCCL's headers and "
              "library and build again",
              name);
}

}  // namespace tandem
