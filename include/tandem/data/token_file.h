// Megatron's .bin/.idx pair, checked against hostile content before anything is read through it.
// A TokenFile is immutable after opening and may be read from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem {

class TokenFile {
 public:
  // Opens prefix.bin and prefix.idx (regular files). Checks magic, version, dtype, exact index
  // size, lengths, pointers against the .bin size, and document boundaries; throws
  // Error(kBadInput) naming file, offset, expected and found.
  static std::unique_ptr<TokenFile> open(const std::string& prefix);
  virtual ~TokenFile() = default;

  [[nodiscard]] virtual std::int64_t num_sequences() const = 0;
  [[nodiscard]] virtual std::span<const std::int32_t> lengths() const = 0;  // tokens per sequence
  // Copies tokens [begin, begin + out.size()) of a sequence; the range must lie inside it. Values
  // are those of the file: the caller knows the vocabulary. Throws Error(kBadInput) if a stored
  // 64-bit value does not fit or the .bin file has shrunk.
  virtual void read(std::int64_t sequence, std::int64_t begin,
                    std::span<std::int32_t> out) const = 0;
  // "prefix.bin byte 1234": where a token lies, for messages.
  [[nodiscard]] virtual std::string where(std::int64_t sequence, std::int64_t token) const = 0;
};

// Writes a pair, one document per sequence, u16 when vocab < 65500 else i32, by the rules of
// base/atomic_file.h: both files are whole before either takes the place of an older one. Only the
// two renames are not one: who reads between them, or after one of them failed or a kill came
// between, finds the .bin and the .idx of different pairs; so may who lets two write a pair at a
// time. Throws Error(kBadInput) also for tokens outside [0, vocab).
void write_token_file(const std::string& prefix,
                      const std::vector<std::vector<std::int32_t>>& documents, int vocab);

}  // namespace tandem
