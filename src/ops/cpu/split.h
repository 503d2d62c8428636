// How the kernels split work. Pieces depend on sizes alone, never on the number of threads, and
// each output element is written by one piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>

#include "tandem/device/workers.h"

namespace tandem::cpu {

// body(row) for every row; rows too cheap to be worth a thread of their own stay together.
template <class Body>
void for_rows(Workers& workers, std::int64_t rows, std::int64_t row_cost, const Body& body) {
  constexpr std::int64_t kPieceCost = 32768;  // element visits, some tens of microseconds
  if (rows <= 0) return;
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  };
  const std::int64_t grain =
      std::max<std::int64_t>(1, kPieceCost / std::max<std::int64_t>(row_cost, 1));
  workers.parallel_for(rows, grain, std::cref(range));
}

// body(index) for pieces of work that are each worth a thread.
template <class Body>
void for_each_piece(Workers& workers, std::int64_t pieces, const Body& body) {
  for_rows(workers, pieces, std::numeric_limits<std::int64_t>::max(), body);
}

// body(begin, end) for the fixed blocks of a flat range.
inline constexpr std::int64_t kFlatBlock = 8192;

template <class Body>
void for_blocks(Workers& workers, std::int64_t count, const Body& body) {
  for_rows(workers, (count + kFlatBlock - 1) / kFlatBlock, kFlatBlock, [&](std::int64_t block) {
    body(block * kFlatBlock, std::min(count, (block + 1) * kFlatBlock));
  });
}

// A buffer of T private to the calling thread, one for each Owner, kept between calls so that hot
// kernels do not allocate. Contents are unspecified; the next call with the same Owner reuses it.
template <class Owner, class T = float>
T* scratch(std::int64_t count) {
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<T[], Free> buffer;
  thread_local std::int64_t capacity = 0;
  if (count > capacity) {
    constexpr std::size_t kAlign = 64;
    const std::size_t bytes =
        (static_cast<std::size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    buffer.reset(static_cast<T*>(std::aligned_alloc(kAlign, bytes)));
    capacity = buffer != nullptr ? count : 0;
    if (buffer == nullptr) throw std::bad_alloc();
  }
  return buffer.get();
}

}  // namespace tandem::cpu
