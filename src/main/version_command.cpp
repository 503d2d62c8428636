#include <fmt/core.h>

#include "commands.h"
#include "version.h"

namespace tandem {

int run_version() {
  fmt::print("tandem {}\n", kVersion);
  fmt::print("compiler  {}\n", kCompiler);
  fmt::print("build     {}\n", kBuildType);
  fmt::print("devices   cpu (OpenBLAS); this build has no CUDA backend\n");
  fmt::print("ranks     MPI, threads\n");
  return 0;
}

}  // namespace tandem
