#include "tandem/device/device.h"

namespace tandem {

void Buffer::reset() noexcept {
  if (device_ != nullptr && data_ != nullptr) device_->release(data_, bytes_, space_);
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tandem
