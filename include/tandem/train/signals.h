// Signals that end a run in an orderly way. SIGUSR1: save and exit 0. SIGTERM and SIGINT: the same as
// far as time allows (mpirun kills the ranks one second after it); a second SIGINT kills. SIGPIPE,
// nobody reads the output any more: as SIGUSR1.
#pragma once

namespace tandem {

// Installs the handlers. Call as early as can be, and after MPI_Init: it may install its own. They
// set flags and need nothing of the libraries.
void install_signal_handlers();

bool stop_requested();       // any of them has arrived
bool terminate_requested();  // SIGTERM or SIGINT has arrived

}  // namespace tandem
