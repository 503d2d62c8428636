// Large numbers as people read them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace tandem {

// "30.53 B": four digits, with the suffixes from 1 on, a thousand apart.
std::string shortened(double value, std::initializer_list<const char*> suffixes);

std::string parameters(std::int64_t count);

}  // namespace tandem
