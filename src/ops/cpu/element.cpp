#include "element.h"

namespace tandem::cpu {

void check_ids(const View& ids, std::int64_t limit, const char* what) {
  TANDEM_CHECK(ids.dtype == DType::kI32, "{}: dtype", what);
  const auto* id = ids.as<std::int32_t>();
  const std::int64_t n = ids.size();
  const auto bound = static_cast<std::uint32_t>(limit);
  bool bad = false;
  for (std::int64_t i = 0; i < n; ++i) bad |= static_cast<std::uint32_t>(id[i]) >= bound;
  if (!bad) return;
  for (std::int64_t i = 0; i < n; ++i)
    if (static_cast<std::uint32_t>(id[i]) >= bound)
      throw_error(ExitCode::kBadInput, "{}[{}] is {}; it must be in [0, {}): check the data", what,
                  i, id[i], limit);
}

}  // namespace tandem::cpu
