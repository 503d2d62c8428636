#include "tandem/base/error.h"

namespace tandem::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& sides,
                  const std::string& message) {
  const std::string values = sides.empty() ? "" : " [" + sides + "]";
  throw Error(ExitCode::kInternal,
              fmt::format("{}:{}: check failed: {}{}: {}", file, line, condition, values, message));
}

}  // namespace tandem::detail
