// Memory of this machine.
#pragma once

namespace tandem {

// Bytes that a new process can have without swapping, as Linux says; 0 where it does not.
double available_host_bytes();

}  // namespace tandem
