#include "tandem/trace/metrics.h"

#include <fmt/core.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tensorboard_record.h"

using namespace tandem;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("crc32c gives the published check values") {
  CHECK(tensorboard::crc32c("123456789") == 0xe3069283U);
  CHECK(tensorboard::crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(tensorboard::crc32c("") == 0U);
}

TEST_CASE("event records are byte for byte what TensorBoard reads") {
  CHECK(hex(tensorboard::framed(tensorboard::version_event(1700000000.0))) ==
        "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
  CHECK(hex(tensorboard::framed(tensorboard::scalars_event(1700000001.0, 300, {{"loss", 2.5}}))) ==
        "1b000000000000001a0d9e130900004040fc54d94110ac022a0d0a0b0a046c6f73731500002040f98936bb");
}

TEST_CASE("several scalars share one event") {
  const std::string one = tensorboard::scalars_event(0, 1, {{"a", 1.0}});
  const std::string two = tensorboard::scalars_event(0, 1, {{"a", 1.0}, {"b", 2.0}});
  CHECK(hex(one).substr(18) ==
        "1001"
        "2a0a"
        "0a08"
        "0a0161"
        "150000803f");
  CHECK(hex(two).substr(18) ==
        "1001"
        "2a14"
        "0a08"
        "0a0161"
        "150000803f"
        "0a08"
        "0a0162"
        "1500000040");
}

TEST_CASE("a TensorBoard folder is made and holds one whole file per sink") {
  const TempFolder folder;
  const std::string runs = folder / "runs/a";
  {
    const auto first = make_tensorboard(runs);
    const auto second = make_tensorboard(runs);  // the same second and process
    first->write(1, {{"loss", 2.0}});
  }
  std::vector<std::size_t> sizes;
  for (const auto& entry : std::filesystem::directory_iterator(runs)) {
    CHECK_THAT(entry.path().filename().string(), Catch::StartsWith("events.out.tfevents."));
    CHECK_THAT(entry.path().filename().string(), Catch::Contains(std::to_string(::getpid())));
    sizes.push_back(entry.file_size());
  }
  REQUIRE(sizes.size() == 2);
  // 40 bytes of header record; the scalar record is one byte shorter than step 300's 43.
  CHECK(std::min(sizes[0], sizes[1]) == 40);
  CHECK(std::max(sizes[0], sizes[1]) == 40 + 42);
}

TEST_CASE("json lines: one object per step, appended, null for what is not finite") {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  make_json_lines(path)->write(3, {{"loss", 2.5}, {"grad_norm", kNan}});
  {
    const auto sink = make_json_lines(path);
    sink->write(4, {{"loss", 0.1}});
    CHECK(lines_of(read_bytes(path)).size() == 2);  // on disk while the sink lives
  }
  const std::vector<std::string> lines = lines_of(read_bytes(path));
  REQUIRE(lines.size() == 2);
  const Json first = parse_json(lines[0], path);
  CHECK(first.at("step", "").as_int("") == 3);
  CHECK(first.at("time", "").as_double("") > 1.6e9);
  CHECK(first.at("loss", "").as_double("") == 2.5);
  CHECK(first.at("grad_norm", "").is_null());
  CHECK(parse_json(lines[1], path).at("loss", "").as_double("") == 0.1);
}

TEST_CASE("json lines: half a line of a killed run does not spoil the next record") {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  std::ofstream(path) << "{\"step\": 1}\n{\"step\": 2, \"lo";
  make_json_lines(path)->write(3, {});
  const std::vector<std::string> lines = lines_of(read_bytes(path));
  REQUIRE(lines.size() == 3);
  CHECK(parse_json(lines[2], path).at("step", "").as_int("") == 3);
}

TEST_CASE("a sink that cannot be opened names its path") {
  CHECK_THROWS_WITH(make_json_lines("/proc/no/such/folder/m.jsonl"),
                    Catch::Contains("/proc/no/such/folder/m.jsonl"));
  CHECK_THROWS_WITH(make_tensorboard("/proc/no-folder"), Catch::Contains("/proc/no-folder"));
}

TEST_CASE("a sink makes the folder its file is in") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tandem-{}", ::getpid());
  make_json_lines((folder / "runs" / "m.jsonl").string())->write(1, {{"loss", 2.0}});
  CHECK(std::filesystem::file_size(folder / "runs" / "m.jsonl") > 0);
  std::filesystem::remove_all(folder);
}
