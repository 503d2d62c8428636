// What the world and the communicators of one MPI process share, and the one check of MPI's codes.
#pragma once

#include <mpi.h>

#include <atomic>

#include "../abort_state.h"

namespace tandem::mpi {

struct Job {
  AbortState abort;
  std::atomic<bool> finalized{false};
};

// Throws Error(kComm) with MPI's own text: check(MPI_Isend(...), "MPI_Isend on ep").
void check(int code, const std::string& what);

// Growing pauses for polling loops: a few looks, a few yields, then sleeps of an eighth of the time
// waited so far, at most kLongestSleep. So ranks that wait leave the cores to ranks that compute.
class Pause {
 public:
  void operator()();

 private:
  int looks_ = 0;
  double waited_us_ = 0;
};

}  // namespace tandem::mpi
