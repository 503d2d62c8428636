// Starts a thread, or says why there is none.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

// Throws Error(kMemory) naming `what` where the system refuses one more thread; way_out: what to
// change.
template <class Body>
std::thread start_thread(const std::string& what, const char* way_out, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw_error(ExitCode::kMemory, "the system refused a thread for {} ({}): {}", what,
                error.code().message(), way_out);
  }
}

}  // namespace tandem
