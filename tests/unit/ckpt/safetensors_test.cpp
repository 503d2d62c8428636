// safetensors: what we write is read back and is well formed; what lies is refused.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/ckpt/safetensors.h"

using namespace tandem;
using Catch::Contains;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

// The message of the Error(kBadInput) that opening must throw.
std::string refusal(const std::string& path) {
  try {
    SafetensorsReader::open(path);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Contains(path));
    return error.what();
  }
  return "accepted";
}

std::vector<std::byte> read_all(const SafetensorsReader& reader, const TensorInfo& tensor) {
  std::vector<std::byte> out(tensor.end - tensor.begin);
  reader.read(tensor, 0, out);
  return out;
}

std::uint32_t crc_bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("crc32c: known value, every length and alignment, continuation") {
  CHECK(crc32c(bytes_of("123456789")) == 0xE3069283U);
  CHECK(crc32c({}) == 0);
  std::string text(64, '\0');
  std::iota(text.begin(), text.end(), '\x40');
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; size < 40; ++size) {
      const auto part = bytes_of(text).subspan(begin, size);
      CHECK(crc32c(part) == crc_bit_by_bit(part));
      CHECK(crc32c(part.subspan(size / 3), crc32c(part.first(size / 3))) == crc32c(part));
    }
  }
}

TEST_CASE("safetensors: what is written is read back, aligned and labelled") {
  const TempFolder scratch;
  const std::string path = scratch / "t";
  const std::string data = "abcdefghijklmnopqrstuvwxyz012345";
  const auto first = [&](std::size_t n) { return bytes_of(data).first(n); };
  const std::vector<TensorToWrite> tensors = {
      {"bytes", DType::kU8, {3}, first(3)},     {"scalar", DType::kF32, {}, first(4)},
      {"half", DType::kBF16, {1, 3}, first(6)}, {"long", DType::kI64, {2, 1, 2}, first(32)},
      {"empty", DType::kF32, {0, 7}, first(0)}, {"a", DType::kF32, {2}, first(8)},
      {"fp16", DType::kF16, {1}, first(2)},     {"int", DType::kI32, {1}, first(4)},
  };
  const std::uint32_t crc = write_safetensors(path, tensors, {{"step", "7"}});
  CHECK(crc == crc32c_of_file(path));
  CHECK(crc == crc32c(bytes_of(read_bytes(path))));

  const auto reader = SafetensorsReader::open(path);
  CHECK(reader->tensors().size() == tensors.size());
  CHECK(reader->metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"step", "7"}});
  CHECK(reader->find("none") == nullptr);
  for (const TensorToWrite& written : tensors) {
    INFO(written.name);
    const TensorInfo* info = reader->find(written.name);
    REQUIRE(info != nullptr);
    CHECK(info->dtype == written.dtype);
    CHECK(info->shape == written.shape);
    CHECK(info->begin % size_of(info->dtype) == 0);
    const auto read = read_all(*reader, *info);
    CHECK(std::equal(read.begin(), read.end(), written.data.begin(), written.data.end()));
  }
  std::vector<std::byte> middle(4);
  reader->read(*reader->find("a"), 3, middle);
  CHECK(std::memcmp(middle.data(), "defg", 4) == 0);
  CHECK_THROWS_AS(reader->read(*reader->find("a"), 5, middle), Error);

  std::uint64_t header = 0;
  std::memcpy(&header, read_bytes(path).data(), sizeof header);
  CHECK(header % 8 == 0);
  CHECK_THROWS_WITH(write_safetensors(path, tensors, {}), Contains("File exists"));
  CHECK_THROWS_AS(write_safetensors(scratch / "u", {{"x", DType::kF32, {2}, first(4)}}, {}), Error);
  CHECK_THROWS_WITH(SafetensorsReader::open(scratch / "none"), Contains("No such file"));
}

TEST_CASE("safetensors: every broken rule is named") {
  const TempFolder scratch;
  const std::string path = scratch / "t";
  const auto refused = [&](const std::string& header, const std::string& data) {
    write_bytes(path, with_length(header, data));
    return refusal(path);
  };
  const auto tensor = [](const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
           "],\"data_offsets\":[" + offsets + "]}";
  };
  const std::string a = tensor("a", "F32", "2", "0,8"), eight(8, 'x');
  CHECK(refused("{" + a + "}", eight) == "accepted");
  CHECK(refused("{" + a + "}   ", eight) == "accepted");

  CHECK_THAT(refused("{" + a + "}", eight + "x"), Contains("end of file") && Contains("9 bytes"));
  CHECK_THAT(refused("{" + a + "}", "short"), Contains("tensor a") && Contains("[0, 8]"));
  CHECK_THAT(refused(" {" + a + "}", eight), Contains("begin with '{'"));
  CHECK_THAT(refused("", ""), Contains("begin with '{'"));
  CHECK_THAT(refused("{" + a + "," + a + "}", eight), Contains("twice"));
  CHECK_THAT(refused("{" + a + "}x", eight), Contains("header"));
  CHECK_THAT(refused("{" + a + "," + tensor("b", "F32", "2", "4,12") + "}", eight + "1234"),
             Contains("tensor b") && Contains("overlap"));
  CHECK_THAT(refused("{" + a + "," + tensor("b", "F32", "1", "12,16") + "}", eight + eight),
             Contains("tensor b") && Contains("gap"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "2", "8,0") + "}", eight), Contains("[8, 0]"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "3", "0,8") + "}", eight), Contains("shape [3]"));
  CHECK_THAT(refused("{" + tensor("a", "F33", "2", "0,8") + "}", eight), Contains("F33"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "-2", "0,8") + "}", eight), Contains("shape"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "2.0", "0,8") + "}", eight), Contains("shape"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "2", "0,8,9") + "}", eight), Contains("3 numbers"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "2", "-1,8") + "}", eight), Contains("data_offsets"));
  CHECK_THAT(refused("{" + tensor("a", "U8", "1,1,1,1,1,1,1,1,8", "0,8") + "}", eight),
             Contains("9 dimensions"));
  CHECK_THAT(refused("{" + tensor("", "F32", "2", "0,8") + "}", eight), Contains("name"));
  // 2^62 * 4 elements * 4 bytes wraps to 0 and to 8 bytes in careless arithmetic.
  CHECK_THAT(refused("{" + tensor("a", "F32", "4611686018427387904,4", "0,0") + "}", ""),
             Contains("shape"));
  CHECK_THAT(refused("{" + tensor("a", "F32", "4611686018427387906,1", "0,8") + "}", eight),
             Contains("shape"));
  CHECK_THAT(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", eight), Contains("data_offsets"));
  CHECK_THAT(
      refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", eight),
      Contains("unknown key \"x\""));
  CHECK_THAT(refused("{\"__metadata__\":{\"n\":1}," + a + "}", eight), Contains("__metadata__.n"));
  CHECK_THAT(refused("{\"a\":" + std::string(100, '[') + "}", eight), Contains("nested"));
  CHECK_THAT(refused("{\"\xff\":1}", ""), Contains("UTF-8"));

  write_bytes(path, "1234567");
  CHECK_THAT(refusal(path), Contains("header length") && Contains("7 bytes"));
  write_bytes(path, std::string(8, '\xff') + "{}");
  CHECK_THAT(refusal(path), Contains("header length") && Contains("18446744073709551615"));
  CHECK_THROWS_WITH(SafetensorsReader::open(scratch / ""), Contains("not a regular file"));
}

TEST_CASE("safetensors: every single-byte change of a header is refused or yields a valid view") {
  const TempFolder scratch;
  const std::string path = scratch / "t", data = "0123456789abcdef01234567";
  write_safetensors(path,
                    {{"first", DType::kF32, {2, 1}, bytes_of(data).first(8)},
                     {"second", DType::kBF16, {4}, bytes_of(data).first(8)},
                     {"third", DType::kU8, {2, 4}, bytes_of(data).first(8)}},
                    {});
  const std::string original = read_bytes(path);
  int refused = 0, valid = 0;
  for (std::size_t at = 0; at < original.size() - data.size(); ++at) {
    for (const int flip : {1, 2, 3, 4, 8, 16, 17, 32, 64, 128, 255}) {
      std::string changed = original;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write_bytes(path, changed);
      try {
        const auto reader = SafetensorsReader::open(path);
        std::size_t bytes = 0;
        for (const TensorInfo& info : reader->tensors()) bytes += read_all(*reader, info).size();
        CHECK(bytes == data.size());
        ++valid;
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kBadInput);
        ++refused;
      }
    }
  }
  CHECK(refused > 10 * valid / 2);
  CHECK(valid > 0);  // another name, another metadata text
}
