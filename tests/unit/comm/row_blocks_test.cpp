#include "row_blocks.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "message_parts.h"

using namespace tandem;

namespace {

View rows_of(std::vector<std::int32_t>& data) {
  return {data.data(), DType::kI32, static_cast<std::int64_t>(data.size()) / 2, 2};
}

}  // namespace

TEST_CASE("blocks are contiguous when their rows follow each other in list order") {
  CHECK(contiguous({}));
  CHECK(contiguous({{5, 0}}));
  CHECK(contiguous({{2, 3}}));
  CHECK(contiguous({{2, 3}, {5, 1}, {99, 0}, {6, 2}}));
  CHECK_FALSE(contiguous({{2, 3}, {6, 1}}));
  CHECK_FALSE(contiguous({{5, 1}, {2, 3}}));
  CHECK(total_rows({{2, 3}, {9, 0}, {5, 1}}) == 4);
}

TEST_CASE("packed rows come back, and rows outside the blocks are left alone") {
  std::vector<std::int32_t> data{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<RowBlock> blocks{{3, 2}, {1, 0}, {0, 1}};
  std::vector<std::int32_t> packed(6);
  pack_rows(rows_of(data), blocks, reinterpret_cast<std::byte*>(packed.data()));
  CHECK(packed == std::vector<std::int32_t>{6, 7, 8, 9, 0, 1});
  std::vector<std::int32_t> back(10, -1);
  unpack_rows(reinterpret_cast<const std::byte*>(packed.data()), rows_of(back), blocks);
  CHECK(back == std::vector<std::int32_t>{0, 1, -1, -1, -1, -1, 6, 7, 8, 9});
  CHECK(first_row(rows_of(data), {{4, 0}, {3, 1}}) == reinterpret_cast<std::byte*>(&data[6]));
}

TEST_CASE("rows are copied between lists whose boundaries differ") {
  std::vector<std::int32_t> from{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<std::int32_t> to(12, -1);
  copy_rows(rows_of(from), {{0, 3}, {4, 1}}, rows_of(to), {{5, 1}, {0, 0}, {1, 2}, {0, 1}});
  CHECK(to == std::vector<std::int32_t>{8, 9, 2, 3, 4, 5, -1, -1, -1, -1, 0, 1});
  copy_rows(rows_of(from), {}, rows_of(to), {{0, 0}});
  copy_rows(rows_of(from), {{1, 0}}, rows_of(to), {});
}

TEST_CASE("a long message is cut into parts that cover it") {
  using Parts = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto parts = [](std::size_t bytes, std::size_t largest) {
    Parts result;
    for_each_part(bytes, largest, [&](std::size_t o, std::size_t b) { result.push_back({o, b}); });
    return result;
  };
  CHECK(parts(0, 10).empty());
  CHECK(parts(10, 10) == Parts{{0, 10}});
  CHECK(parts(25, 10) == Parts{{0, 10}, {10, 10}, {20, 5}});
  CHECK(parts(std::size_t{5} << 30, kLargestPart).size() == 5);
}

TEST_CASE("runs are the longest that are consecutive on both sides") {
  using Run = std::vector<std::int64_t>;
  std::vector<Run> runs;
  const auto keep = [&](std::int64_t from, std::int64_t to, std::int64_t rows) {
    runs.push_back({from, to, rows});
  };
  for_each_run({{2, 3}, {5, 0}, {5, 2}, {9, 1}}, {{0, 1}, {1, 4}, {20, 0}, {5, 1}}, keep);
  CHECK(runs == std::vector<Run>{{2, 0, 5}, {9, 5, 1}});
  runs.clear();
  for_each_run({{4, 4}}, {{8, 1}, {0, 3}}, keep);
  CHECK(runs == std::vector<Run>{{4, 8, 1}, {5, 0, 3}});
  runs.clear();
  for_each_run({{0, 0}}, {}, keep);
  CHECK(runs.empty());
}
