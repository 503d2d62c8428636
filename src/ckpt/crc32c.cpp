// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): eight bytes per step from tables, or the
// processor's own instruction where it has one.
#include <array>
#include <cstring>

#include "disk.h"
#include "tandem/ckpt/safetensors.h"

namespace tandem {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: the effect of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = previous >> 8 ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

struct TableStep {
  static std::uint32_t one(std::uint32_t crc, std::uint8_t byte) {
    return crc >> 8 ^ kTables[0][(crc ^ byte) & 0xFF];
  }
  static std::uint32_t eight(std::uint32_t crc, std::uint64_t word) {
    word ^= crc;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) next ^= kTables[7 - k][word >> 8 * k & 0xFF];
    return next;
  }
};

template <class Step>
std::uint32_t advance(std::span<const std::byte> bytes, std::uint32_t crc) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    crc = Step::eight(crc, word);
  }
  for (; at != end; ++at) crc = Step::one(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

#if defined(__SSE4_2__)
struct ProcessorStep {
  static std::uint32_t one(std::uint32_t crc, std::uint8_t byte) {
    return __builtin_ia32_crc32qi(crc, byte);
  }
  static std::uint32_t eight(std::uint32_t crc, std::uint64_t word) {
    return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
  }
};
#else
using ProcessorStep = TableStep;
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  return ~advance<ProcessorStep>(bytes, ~previous);
}

std::uint32_t crc32c_of_file(const std::string& path) {
  return ReadFile(path, Links::kFollow).crc32c();
}

}  // namespace tandem
