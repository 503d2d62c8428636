#include "token_index.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::uint64_t kMaxSequences = std::numeric_limits<std::int32_t>::max();

template <class... Args>
[[noreturn]] void reject(const InputFile& file, std::uint64_t offset, const char* field,
                         fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ExitCode::kBadInput, "{} byte {} ({}): {}", file.path(), offset, field,
              fmt::format(text, std::forward<Args>(args)...));
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <class T>
std::vector<T> read_array(const InputFile& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<T> values(count);
  file.read(static_cast<std::int64_t>(offset), std::as_writable_bytes(std::span(values)));
  return values;
}

struct Header {
  TokenType type;
  std::uint64_t sequences, boundaries;
};

TokenType known_type(const InputFile& idx, std::uint8_t code) {
  switch (static_cast<TokenType>(code)) {
    case TokenType::kU8:
    case TokenType::kI8:
    case TokenType::kI16:
    case TokenType::kI32:
    case TokenType::kI64:
    case TokenType::kU16:
      return static_cast<TokenType>(code);
  }
  reject(idx, 17, "dtype code", "found {}, expected an integer type: 1, 2, 3, 4, 5 or 8", code);
}

void check_index_size(const InputFile& idx, const Header& header) {
  const std::uint64_t size = static_cast<std::uint64_t>(idx.size());
  // Both counts are bounded by the file's size first, so the sum below cannot wrap.
  if (header.sequences == 0) reject(idx, 18, "sequence count", "found 0, expected 1 or more");
  if (header.sequences > kMaxSequences || header.sequences > size / 12) {
    reject(idx, 18, "sequence count", "found {}, too many for a file of {} bytes", header.sequences,
           size);
  }
  if (header.boundaries == 0 || header.boundaries > size / 8) {
    reject(idx, 26, "boundary count", "found {}, expected 1 to {} in a file of {} bytes",
           header.boundaries, size / 8, size);
  }
  const std::uint64_t expected = kIndexHeaderBytes + 12 * header.sequences + 8 * header.boundaries;
  if (size != expected && size != expected + header.sequences) {
    reject(
        idx, size, "end of file",
        "the file has {} bytes, expected {} for {} sequences and {} boundaries (or {} with modes)",
        size, expected, header.sequences, header.boundaries, expected + header.sequences);
  }
}

Header read_header(const InputFile& idx) {
  if (idx.size() < kIndexHeaderBytes) {
    reject(idx, static_cast<std::uint64_t>(idx.size()), "header",
           "the file has {} bytes, expected at least {}", idx.size(), kIndexHeaderBytes);
  }
  std::array<std::byte, kIndexHeaderBytes> bytes;
  idx.read(0, bytes);
  if (std::memcmp(bytes.data(), kIndexMagic, sizeof kIndexMagic) != 0) {
    reject(idx, 0, "magic",
           "this is not a token index; its first 9 bytes should be MMIDIDX and "
           "two zero bytes");
  }
  const auto version = value_at<std::uint64_t>(bytes, 9);
  if (version != 1) reject(idx, 9, "version", "found {}, expected 1", version);
  Header header{known_type(idx, value_at<std::uint8_t>(bytes, 17)),
                value_at<std::uint64_t>(bytes, 18), value_at<std::uint64_t>(bytes, 26)};
  check_index_size(idx, header);
  return header;
}

void check_sequences(const InputFile& idx, const InputFile& bin, const TokenIndex& index) {
  const std::int64_t width = bytes_per_token(index.type);
  const std::size_t count = index.lengths.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t length = index.lengths[i], pointer = index.pointers[i];
    if (length < 0) {
      reject(idx, kIndexHeaderBytes + 4 * i, "sequence length",
             "sequence {} has {} tokens, expected 0 or more", i, length);
    }
    const std::uint64_t at = kIndexHeaderBytes + 4 * count + 8 * i;
    if (pointer < 0 || pointer % width != 0) {
      reject(idx, at, "sequence pointer",
             "sequence {} begins at byte {}, expected a multiple of {}, 0 or more", i, pointer,
             width);
    }
    if (pointer > bin.size() || length * width > bin.size() - pointer) {
      reject(idx, at, "sequence pointer",
             "sequence {} has {} tokens of {} bytes from byte {}, but {} has only {} bytes", i,
             length, width, pointer, bin.path(), bin.size());
    }
  }
}

void check_boundaries(const InputFile& idx, std::uint64_t sequences,
                      const std::vector<std::int64_t>& boundaries) {
  const std::uint64_t base = kIndexHeaderBytes + 12 * sequences;
  if (boundaries.front() != 0) {
    reject(idx, base, "document boundary", "the first is {}, expected 0", boundaries.front());
  }
  for (std::size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] < boundaries[i - 1]) {
      reject(idx, base + 8 * i, "document boundary", "boundary {} is {}, expected at least {}", i,
             boundaries[i], boundaries[i - 1]);
    }
  }
  if (boundaries.back() != static_cast<std::int64_t>(sequences)) {
    reject(idx, base + 8 * (boundaries.size() - 1), "document boundary",
           "the last is {}, expected the sequence count {}", boundaries.back(), sequences);
  }
}

}  // namespace

int bytes_per_token(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  throw_error(ExitCode::kInternal, "token type {} is unknown", static_cast<int>(type));
}

TokenIndex read_token_index(const InputFile& idx, const InputFile& bin) {
  const Header header = read_header(idx);
  const std::uint64_t count = header.sequences;
  TokenIndex index{header.type, read_array<std::int32_t>(idx, kIndexHeaderBytes, count),
                   read_array<std::int64_t>(idx, kIndexHeaderBytes + 4 * count, count)};
  check_sequences(idx, bin, index);
  check_boundaries(
      idx, count, read_array<std::int64_t>(idx, kIndexHeaderBytes + 12 * count, header.boundaries));
  return index;
}

}  // namespace tandem
