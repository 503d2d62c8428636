// The weights of data.split.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace tandem {

// "969,30,1" -> weights of the training, validation and test documents; those left out are 0,
// blanks around a number do not count. nullopt where it is anything but one to three numbers in
// [0, 1e9], one of them above 0.
std::optional<std::array<double, 3>> split_weights(std::string_view text);

}  // namespace tandem
