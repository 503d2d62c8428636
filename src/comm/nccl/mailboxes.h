// Mailboxes: GPU memory that NCCL knows in advance on every member, one outgoing and one incoming
// box per member, registered as symmetric windows (NCCL 2.27 and later): transfers between such
// buffers need no staging of NCCL's own and take less from kernels that run beside them.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>

#include "nccl_group.h"

namespace tandem {

class Mailboxes {
 public:
  // Collective over the group, with the same size of a box everywhere. Blocks. Throws
  // Error(kMemory) saying what to change, Error(kComm).
  Mailboxes(NcclGroup& group, int members, std::size_t box_bytes);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  [[nodiscard]] std::size_t box_bytes() const { return box_bytes_; }
  [[nodiscard]] std::byte* out(int member) const { return out_.get() + offset(member); }
  [[nodiscard]] std::byte* in(int member) const { return in_.get() + offset(member); }

 private:
  struct Free {
    void operator()(std::byte* data) const { ncclMemFree(data); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  [[nodiscard]] Memory allocate(int members) const;
  [[nodiscard]] std::size_t offset(int member) const {
    return static_cast<std::size_t>(member) * box_bytes_;
  }

  NcclGroup& group_;
  const std::size_t box_bytes_;
  Memory out_, in_;
  ncclWindow_t out_window_ = nullptr, in_window_ = nullptr;
};

}  // namespace tandem
