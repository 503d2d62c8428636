// The content of a .idx file after every rule about it has been checked.
//
//   byte 0   "MMIDIDX\0\0"      9 bytes          34            lengths    i32[S]
//        9   version = 1        u64              34 + 4S       pointers   i64[S]  bytes into .bin
//       17   dtype code         u8               34 + 12S      documents  i64[D]  0 ... S
//       18   S sequences        u64              34 + 12S + 8D modes      i8[S]   optional
//       26   D boundaries       u64
// All little endian; every array is misaligned, so values are copied out, never pointed at.
#pragma once

#include <cstdint>
#include <vector>

#include "input_file.h"

namespace tandem {

inline constexpr std::int64_t kIndexHeaderBytes = 34;
inline constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

enum class TokenType : std::uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU16 = 8,  // 6 and 7 are floating point and hold no tokens
};

int bytes_per_token(TokenType type);

struct TokenIndex {
  TokenType type = TokenType::kU16;
  std::vector<std::int32_t> lengths;   // tokens, each >= 0
  std::vector<std::int64_t> pointers;  // bytes; pointer + length * bytes_per_token <= .bin size
};

// Throws Error(kBadInput) naming the file, the byte, what is there and what would be right.
TokenIndex read_token_index(const InputFile& idx, const InputFile& bin);

}  // namespace tandem
