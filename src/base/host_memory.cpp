#include "tandem/base/host_memory.h"

#include <fstream>
#include <string>

namespace tandem {

double available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kib = 0.0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024.0;
    file.ignore(256, '\n');
  }
  return 0.0;
}

}  // namespace tandem
