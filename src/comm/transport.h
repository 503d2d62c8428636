// Transport: moves bytes between the members of one group. All collectives are built on its one
// operation, so they are the same code on every backend.
//
// One thread at a time uses a transport, and all members issue matching exchanges in the same
// order. Messages between two members arrive in the order they are listed.
#pragma once

#include <cstddef>
#include <span>

namespace tandem {

struct Outgoing {
  int peer;
  const std::byte* data;
  std::size_t bytes;
};

struct Incoming {
  int peer;
  std::byte* data;
  std::size_t bytes;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Sends and receives everything listed, in any interleaving; blocks until all of it is done and
  // the memory may be used again. Both sides know the sizes, so messages of zero bytes are not
  // sent. Peers are never this member. Throws Error(kComm) when the world is aborted, when the
  // library fails, or when the two sides of a message differ in size.
  virtual void exchange(std::span<const Outgoing> sends, std::span<const Incoming> recvs) = 0;

 protected:
  Transport() = default;
};

}  // namespace tandem
