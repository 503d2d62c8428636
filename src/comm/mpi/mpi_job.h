// What the world and the communicators of one MPI process share, and the one check of MPI's codes.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>

#include "../abort_state.h"
#include "poller.h"

namespace tandem::mpi {

struct Job {
  AbortState abort;
  Poller poller{abort};
  std::atomic<bool> finalized{false};
};

// Throws Error(kComm) with MPI's own text: check(MPI_Isend(...), "MPI_Isend on ep").
void check(int code, const std::string& what);

}  // namespace tandem::mpi
