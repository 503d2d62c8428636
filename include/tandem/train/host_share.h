// What a rank has of its host.
#pragma once

#include "tandem/comm/world.h"

namespace tandem {

// Cores, of this rank.
struct CoreShare {
  int machine = 1;  // all there are
  int allowed = 1;  // those this rank may use
  // What each rank of the host would have if the launcher bound none of them: of the machine, or of
  // the part of it that the job may use (a container, a batch system's allocation).
  int fair = 1;
};

// Collective, blocking.
CoreShare cores_of_rank(World& world);

// Bytes of memory that are free, divided among the ranks of the host; 0 where Linux does not say.
// Every rank takes as much, so it is measured by all of them before one takes any. Collective,
// blocking.
double host_bytes_of_rank(World& world);

}  // namespace tandem
