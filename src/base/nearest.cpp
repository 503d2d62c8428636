#include "tandem/base/nearest.h"

#include <algorithm>
#include <string>

namespace tandem {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the dynamic program suffice: a swap looks two rows back.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates) {
  constexpr std::size_t kLongest = 64;  // no name comes near a longer one
  if (name.size() > kLongest) return {};
  const std::string wanted = lower_case(name);
  std::string_view best;
  int best_distance = std::max(2, static_cast<int>(name.size() / 3)) + 1;
  for (const std::string_view candidate : candidates) {
    const int distance = edit_distance(wanted, lower_case(candidate));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  constexpr std::size_t kShortestPrefix = 3;
  if (best.empty() && name.size() >= kShortestPrefix)
    for (const std::string_view candidate : candidates)
      if (lower_case(candidate).starts_with(wanted)) return candidate;
  return best;
}

}  // namespace tandem
