#include "tandem/config/split.h"

#include <charconv>

namespace tandem {
namespace {

constexpr double kMostWeight = 1e9;

std::optional<double> weight_of(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return std::nullopt;
  const char* end = text.data() + text.find_last_not_of(kBlanks) + 1;
  double weight = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin, end, weight);
  const bool number = error == std::errc() && stop == end;
  return number && weight >= 0 && weight <= kMostWeight ? std::optional(weight) : std::nullopt;
}

}  // namespace

std::optional<std::array<double, 3>> split_weights(std::string_view text) {
  std::array<double, 3> weights{};
  for (double& weight : weights) {
    const std::size_t comma = text.find(',');
    const std::optional<double> given = weight_of(text.substr(0, comma));
    if (!given) return std::nullopt;
    weight = *given;
    if (comma == std::string_view::npos)
      return weights[0] + weights[1] + weights[2] > 0 ? std::optional(weights) : std::nullopt;
    text.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

}  // namespace tandem
