#include "tensorboard_record.h"

#include <array>
#include <bit>
#include <cstddef>

namespace tandem::tensorboard {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78U;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1U) != 0 ? crc >> 1 ^ kReflectedPolynomial : crc >> 1;
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

// A crc stored beside the data it covers is masked, so that a crc over both stays useful.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    out.push_back(static_cast<char>(value >> (8 * i) & 0xffU));
  }
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

// Protobuf keys: field number << 3 | wire type (0 varint, 1 64-bit, 2 bytes, 5 32-bit).
enum Key : char {
  kEventWallTime = 1 << 3 | 1,
  kEventStep = 2 << 3 | 0,
  kEventFileVersion = 3 << 3 | 2,
  kEventSummary = 5 << 3 | 2,
  kSummaryValue = 1 << 3 | 2,
  kValueTag = 1 << 3 | 2,
  kValueSimple = 2 << 3 | 5,
};

void put_bytes(std::string& out, Key key, std::string_view bytes) {
  out.push_back(key);
  put_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_at(double wall_time_s) {
  std::string out(1, kEventWallTime);
  put_little_endian(out, std::bit_cast<std::uint64_t>(wall_time_s));
  return out;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  }
  return ~crc;
}

std::string framed(std::string_view payload) {
  std::string out;
  put_little_endian(out, static_cast<std::uint64_t>(payload.size()));
  put_little_endian(out, masked_crc(out));
  out.append(payload);
  put_little_endian(out, masked_crc(payload));
  return out;
}

std::string version_event(double wall_time_s) {
  std::string out = event_at(wall_time_s);
  put_bytes(out, kEventFileVersion, "brain.Event:2");
  return out;
}

std::string scalars_event(double wall_time_s, std::int64_t step, const MetricList& metrics) {
  std::string summary;
  for (const auto& [name, value] : metrics) {
    std::string entry;
    put_bytes(entry, kValueTag, name);
    entry.push_back(kValueSimple);
    put_little_endian(entry, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
    put_bytes(summary, kSummaryValue, entry);
  }
  std::string out = event_at(wall_time_s);
  out.push_back(kEventStep);
  put_varint(out, static_cast<std::uint64_t>(step));
  put_bytes(out, kEventSummary, summary);
  return out;
}

}  // namespace tandem::tensorboard
