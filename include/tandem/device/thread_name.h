// Names the calling thread for debuggers, top -H and sanitizer reports.
#pragma once

#include <string>

namespace tandem {

// Linux keeps 15 characters; longer names are cut. Never fails.
void name_this_thread(const std::string& name) noexcept;

}  // namespace tandem
