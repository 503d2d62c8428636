#pragma once

#include <string>

#include "tandem/base/error.h"

namespace tandem {

// Thrown by waits that end because the world was aborted: a consequence, never the cause. Its text
// is the reason of the abort.
class Aborted : public Error {
 public:
  explicit Aborted(const std::string& reason) : Error(ExitCode::kComm, reason) {}
};

}  // namespace tandem
