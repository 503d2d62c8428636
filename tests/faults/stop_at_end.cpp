// Loaded before the MPI library: the rank that TANDEM_STOPPED_RANK names is stopped when it has
// done all that it does in a run.
#include <dlfcn.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

extern "C" int MPI_Finalize() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* stopped = std::getenv("TANDEM_STOPPED_RANK");
  if (rank != nullptr && stopped != nullptr && std::string_view(rank) == stopped)
    std::raise(SIGSTOP);
  return reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "MPI_Finalize"))();
}
