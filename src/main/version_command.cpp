#include <fmt/core.h>

#include "commands.h"
#include "tandem/base/build_config.h"
#include "version.h"

namespace tandem {

int run_version() {
  fmt::print("tandem {}\n", kVersion);
  fmt::print("compiler  {}\n", kCompiler);
  fmt::print("build     {}\n", kBuildType);
  const char* cuda = kHasCudnn ? ", cuda with cuDNN" : ", cuda without cuDNN";
  fmt::print("devices   cpu (OpenBLAS){}\n",
             kHasCuda ? cuda : "; this build has no CUDA backend");
  fmt::print("ranks     MPI, threads{}\n", kHasNccl ? ", NCCL" : "");
  return 0;
}

}  // namespace tandem
