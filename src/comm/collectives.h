// The collectives, written once over Transport::exchange.
//
// Reductions add in member order 0, 1, ... for every element, whatever path is taken, so their
// bits depend on the inputs alone. All functions block; memory is the caller's.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tandem/comm/comm.h"
#include "transport.h"

namespace tandem {

// Grow-only bytes, so that a steady state allocates nothing.
class RoundMemory {
 public:
  std::byte* at_least(std::size_t bytes);

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0;
};

class Collectives {
 public:
  // Elements per member and round of a reduction: what waits to be added stays in the cache.
  static constexpr std::int64_t kRoundElements = std::int64_t{1} << 17;
  // Up to this many elements, one round that sends everything to everyone beats two rounds.
  static constexpr std::int64_t kSmallElements = 4096;

  explicit Collectives(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  [[nodiscard]] Transport& transport() { return *transport_; }
  void all_to_all(const AllToAll& plan);
  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each);
  void reduce_scatter(const float* in, float* out, std::int64_t count_each);
  void all_reduce(float* inout, std::int64_t count, ReduceOp op);
  void send(const std::byte* data, std::size_t bytes, int peer);
  void recv(std::byte* data, std::size_t bytes, int peer);

 private:
  // bounds[p], bounds[p + 1]: the elements of member p. Only this member's part of out is written.
  void reduce_own_part(const float* in, float* own, const std::vector<std::int64_t>& bounds,
                       ReduceOp op);
  void gather_parts(float* inout, const std::vector<std::int64_t>& bounds);
  void all_reduce_small(float* inout, std::int64_t count, ReduceOp op);

  std::unique_ptr<Transport> transport_;
  RoundMemory scratch_;
};

}  // namespace tandem
