// What a process knows of its launcher before MPI begins, from the environment alone.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>
#include <string>

#include "tandem/comm/world.h"

namespace tandem {
namespace {

// The launchers' variables are these and no others.
void launched_with(const std::map<std::string, std::string>& variables) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

TEST_CASE("the rank is known from whatever launcher started the process") {
  launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}});
  CHECK(launcher_rank() == 3);
  launched_with({{"PMI_RANK", "2"}});  // MPICH's mpiexec, and srun --mpi=pmi2
  CHECK(launcher_rank() == 2);
  launched_with({{"SLURM_PROCID", "17"}, {"PMIX_RANK", "17"}});  // srun --mpi=pmix
  CHECK(launcher_rank() == 17);
}

TEST_CASE("a process without a launcher, or whose launcher names no rank, has none") {
  launched_with({});
  CHECK(launcher_rank() == std::nullopt);
  launched_with({{"SLURM_PROCID", "0"}});  // a job's script itself, without srun
  CHECK_FALSE(launched_by_mpi());
  CHECK(launcher_rank() == std::nullopt);
  launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(launched_by_mpi());
  CHECK(launcher_rank() == std::nullopt);
  launched_with({{"PMI_RANK", "1st"}});
  CHECK(launcher_rank() == std::nullopt);
}

}  // namespace
}  // namespace tandem
