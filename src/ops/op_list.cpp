#include "tandem/ops/op_list.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw_error(ExitCode::kInternal, "an op list keeps ops, it cannot {}", what);
}

}  // namespace

void OpList::record(Event& /*event*/) {
  refuse("record an event");
}
void OpList::wait(const Event& /*event*/) {
  refuse("wait for an event");
}
void OpList::call(std::function<void()> /*work*/) {
  refuse("call host work");
}
void OpList::sync() {
  refuse("be synced");
}

}  // namespace tandem
