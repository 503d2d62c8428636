#include <chrono>
#include <thread>

#include "tandem/device/device.h"

namespace tandem {

// Fits devices whose streams have a thread each for their host work.
void Device::delay(Stream& stream, double us) {
  const std::chrono::duration<double, std::micro> length(us);
  stream.call([length] { std::this_thread::sleep_for(length); });
}

}  // namespace tandem
