#include "mailboxes.h"

#include <exception>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kUnit = NCCL_WIN_REQUIRED_ALIGNMENT;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

Mailboxes::Mailboxes(NcclGroup& group, int members, std::size_t box_bytes)
    : group_(group),
      box_bytes_(rounded(box_bytes)),
      out_(allocate(members)),
      in_(allocate(members)) {
  const std::size_t bytes = offset(members);
  group_.run("window registration", [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, out_.get(), bytes, &out_window_, NCCL_WIN_COLL_SYMMETRIC);
  });
  group_.run("window registration", [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, in_.get(), bytes, &in_window_, NCCL_WIN_COLL_SYMMETRIC);
  });
}

// After an abort there is no communicator left that could know a window.
Mailboxes::~Mailboxes() {
  for (ncclWindow_t window : {out_window_, in_window_}) {
    if (window == nullptr) continue;
    try {
      group_.run("window release",
                 [&](ncclComm_t comm) { return ncclCommWindowDeregister(comm, window); });
    } catch (const std::exception&) {
      continue;
    }
  }
}

Mailboxes::Memory Mailboxes::allocate(int members) const {
  void* data = nullptr;
  if (ncclMemAlloc(&data, offset(members)) != ncclSuccess)
    throw_error(ExitCode::kMemory,
                "out of memory: the all-to-all needs {} bytes for its mailboxes; use smaller "
                "micro-batches, or train.alltoall=plain",
                offset(members));
  return Memory(static_cast<std::byte*>(data));
}

}  // namespace tandem
