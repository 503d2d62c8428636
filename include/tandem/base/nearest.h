// The name a user most likely meant.
#pragma once

#include <string_view>
#include <vector>

namespace tandem {

// Smallest number of single-character insertions, deletions, replacements and swaps of neighbours.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name` within a third of its length (at least 2); else the first that
// begins with `name`, if it has three letters; else "". The first wins among equals; capital
// letters count as small ones.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

}  // namespace tandem
