// Cuts a message into parts a 32-bit count can describe. Both sides know the size, so both cut
// alike.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tandem {

constexpr std::size_t kLargestPart = std::size_t{1} << 30;

// Calls body(offset, bytes) for each part in order; never for zero bytes.
template <class Body>
void for_each_part(std::size_t bytes, std::size_t largest, Body&& body) {
  for (std::size_t offset = 0; offset < bytes; offset += largest) {
    body(offset, std::min(largest, bytes - offset));
  }
}

}  // namespace tandem
