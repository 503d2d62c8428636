// The reference of every key, as text for people.
#pragma once

#include <string>

namespace tandem {

// Markdown: one table per section, one row per key (type, range, unit, default, meaning). Built
// from the table the parser uses, so it cannot disagree with it. Part of docs/CONFIG.md.
std::string config_reference();

}  // namespace tandem
