// What every backend of World and Comm must do. Catch2's assertions are not made for many threads,
// so a failed expectation throws; a case returns a digest of its results, to be compared between
// backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/world.h"

namespace tandem::ranks {

struct RankCase {
  const char* name;
  int min_ranks;
  std::function<std::uint64_t(World&)> body;
};

std::vector<RankCase> rank_cases();

void expect(bool ok, const std::string& what);

// 64-bit FNV-1a over the bits of everything added.
class Digest {
 public:
  void add(const void* data, std::size_t bytes);
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 1469598103934665603ULL;
};

// A device with one stream: what one lane of a rank has.
struct Lane {
  explicit Lane(const std::string& name = "lane");
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

std::vector<int> everyone(const World& world);

// Whole numbers below `limit`, from a counter-based generator: any rank can make any rank's data.
std::int64_t whole(std::uint64_t stream, std::uint64_t index, std::int64_t limit);

std::uint64_t all_to_all_case(World& world);
std::uint64_t reduction_case(World& world);

}  // namespace tandem::ranks
