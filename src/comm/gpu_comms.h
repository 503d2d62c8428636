// Communicators of GPU memory. A build without the library throws Error(kUsage) instead.
#pragma once

#include <memory>
#include <string>

#include "abort_state.h"
#include "tandem/comm/comm.h"
#include "transport.h"

namespace tandem {

// Every byte travels over the transport.
std::unique_ptr<Comm> make_staged_comm(std::unique_ptr<Transport> transport, std::string name);

// The transport only introduces the members to each other. Blocks until all of them are here.
std::unique_ptr<Comm> make_nccl_comm(Transport& transport, std::string name,
                                     const CommOptions& options, AbortState& abort);

}  // namespace tandem
