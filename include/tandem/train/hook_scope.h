// HookScope: tells a hook where something begins, and where it ends, also by an exception.
#pragma once

#include <functional>

namespace tandem {

class HookScope {
 public:
  explicit HookScope(const std::function<void(bool)>& hook) : hook_(hook) { tell(true); }
  ~HookScope() { tell(false); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  void tell(bool begins) const {
    if (hook_) hook_(begins);
  }
  const std::function<void(bool)>& hook_;
};

}  // namespace tandem
