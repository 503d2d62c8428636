// Which GPU holds a rank whose plan takes so many bytes, and what it needs beside the plan.
#pragma once

#include <cstdint>

#include "tandem/base/json_writer.h"

namespace tandem {

// The line of the tables about the largest rank.
void print_fit(std::int64_t largest_bytes);

// The same as an object, the value that `json` expects next.
void write_fit(JsonWriter& json, std::int64_t largest_bytes);

}  // namespace tandem
