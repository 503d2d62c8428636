// FreeBuffers: buffers of one kind whose last slot is dead, in the order in which they became free.
// A tree over that order keeps the earliest clock of each part, so that finding one costs little
// where most of them are still in use, as in stages that only pass on what they receive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "clocks.h"

namespace tandem {

class FreeBuffers {
 public:
  // `last`: the last access of each lane to the buffer.
  void push(std::int32_t buffer, const Clock& last) {
    if (size_ == buffers_.size()) rebuild();
    buffers_[size_] = buffer;
    set(size_++, last);
  }

  // Takes out the buffer pushed last all of whose accesses are ordered before `reach` and for which
  // accept(buffer) holds; -1 if there is none.
  template <class Accept>
  std::int32_t take(const Clock& reach, Accept&& accept) {
    if (size_ == 0) return -1;
    const std::size_t at = find(1, reach, accept);
    if (at == kNowhere) return -1;
    set(at, kTaken);
    while (size_ > 0 && earliest_[buffers_.size() + size_ - 1] == kTaken) --size_;
    return buffers_[at];
  }

 private:
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  static constexpr Clock kTaken = [] {
    Clock never{};
    never.fill(std::numeric_limits<std::int32_t>::max());
    return never;
  }();

  static bool reaches(const Clock& reach, const Clock& clock) {
    bool all = true;
    for (std::size_t l = 0; l < clock.size(); ++l) all &= clock[l] <= reach[l];
    return all;
  }

  // Node n has the children 2n and 2n + 1; the leaves, one a buffer, are the last half.
  template <class Accept>
  std::size_t find(std::size_t node, const Clock& reach, Accept& accept) const {
    if (!reaches(reach, earliest_[node])) return kNowhere;
    if (node >= buffers_.size()) {
      const std::size_t at = node - buffers_.size();
      return accept(buffers_[at]) ? at : kNowhere;
    }
    const std::size_t later = find(2 * node + 1, reach, accept);
    return later != kNowhere ? later : find(2 * node, reach, accept);
  }

  void set(std::size_t at, const Clock& last) {
    std::size_t node = buffers_.size() + at;
    earliest_[node] = last;
    while (node /= 2) update_from_children(node);
  }

  void update_from_children(std::size_t node) {
    const Clock &a = earliest_[2 * node], &b = earliest_[2 * node + 1];
    for (std::size_t l = 0; l < a.size(); ++l) earliest_[node][l] = std::min(a[l], b[l]);
  }

  // Closes the gaps and makes room for as many buffers again.
  void rebuild() {
    const std::size_t leaves = buffers_.size();
    std::vector<std::int32_t> kept;
    std::vector<Clock> clocks;
    for (std::size_t at = 0; at < size_; ++at) {
      if (earliest_[leaves + at] == kTaken) continue;
      kept.push_back(buffers_[at]);
      clocks.push_back(earliest_[leaves + at]);
    }
    std::size_t room = 4;
    while (room < 2 * kept.size()) room *= 2;
    size_ = kept.size();
    buffers_ = std::move(kept);
    buffers_.resize(room);
    earliest_.assign(2 * room, kTaken);
    std::copy(clocks.begin(), clocks.end(), earliest_.begin() + static_cast<std::ptrdiff_t>(room));
    for (std::size_t node = room - 1; node > 0; --node) update_from_children(node);
  }

  std::vector<std::int32_t> buffers_;  // in order; its size, a power of two, is that of the leaves
  std::vector<Clock> earliest_;        // by node: the least of its leaves, lane by lane
  std::size_t size_ = 0;               // leaves in use, those taken among them included
};

}  // namespace tandem
