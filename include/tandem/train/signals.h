// Signals that end a run in an orderly way. SIGUSR1: save and exit 0. SIGTERM: the same as far as
// time allows (mpirun kills the ranks one second after it).
#pragma once

namespace tandem {

// Installs the handlers. Call after MPI_Init, which installs its own.
void install_signal_handlers();

bool stop_requested();       // SIGUSR1 or SIGTERM has arrived
bool terminate_requested();  // SIGTERM has arrived

}  // namespace tandem
