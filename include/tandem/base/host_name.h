// The name of this machine, as other machines know it.
#pragma once

#include <string>

namespace tandem {

std::string host_name();

}  // namespace tandem
