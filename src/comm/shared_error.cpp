#include "tandem/comm/shared_error.h"

#include <algorithm>

namespace tandem {

void share_error(World& world, ExitCode code, const std::string& text) {
  const auto mine =
      text.empty() ? std::string() : fmt::format("{} {}", static_cast<int>(code), text);
  const auto all = world.gather(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& e) { return !e.empty(); });
  if (first == all.end()) return;
  const std::size_t space = first->find(' ');
  const auto its_code = static_cast<ExitCode>(std::stoi(first->substr(0, space)));
  const bool everywhere =
      std::all_of(all.begin(), all.end(), [&](const auto& e) { return e == *first; });
  if (everywhere) throw SharedError(its_code, first->substr(space + 1));
  throw_shared(its_code, "rank {}: {}", first - all.begin(), first->substr(space + 1));
}

}  // namespace tandem
