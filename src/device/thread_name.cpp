#include "tandem/device/thread_name.h"

#include <pthread.h>

#include <array>
#include <cstring>

namespace tandem {

void name_this_thread(const std::string& name) noexcept {
  std::array<char, 16> text{};
  std::strncpy(text.data(), name.c_str(), text.size() - 1);
  pthread_setname_np(pthread_self(), text.data());
}

}  // namespace tandem
