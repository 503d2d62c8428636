#include "mpi_job.h"

#include <array>

namespace tandem::mpi {

void check(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw_error(ExitCode::kComm, "{} failed: {}", what,
              std::string(text.data(), static_cast<std::size_t>(length)));
}

}  // namespace tandem::mpi
