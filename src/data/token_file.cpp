#include "tandem/data/token_file.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>

#include "input_file.h"
#include "tandem/base/atomic_file.h"
#include "tandem/base/error.h"
#include "token_index.h"

namespace tandem {
namespace {

constexpr int kFirstWideVocab = 65500;  // from here on tokens are written as i32

class CheckedTokenFile final : public TokenFile {
 public:
  explicit CheckedTokenFile(const std::string& prefix)
      : bin_(prefix + ".bin"), index_(read_token_index(InputFile(prefix + ".idx"), bin_)) {}

  std::int64_t num_sequences() const override {
    return static_cast<std::int64_t>(index_.lengths.size());
  }

  std::span<const std::int32_t> lengths() const override { return index_.lengths; }

  void read(std::int64_t sequence, std::int64_t begin, std::span<std::int32_t> out) const override {
    TANDEM_CHECK(sequence >= 0, "token file {}", bin_.path());
    TANDEM_CHECK(sequence < num_sequences(), "token file {}", bin_.path());
    TANDEM_CHECK(begin >= 0, "sequence {} of {}", sequence, bin_.path());
    TANDEM_CHECK(begin + static_cast<std::int64_t>(out.size()) <=
                     index_.lengths[static_cast<std::size_t>(sequence)],
                 "sequence {} of {}", sequence, bin_.path());
    switch (index_.type) {
      case TokenType::kU8:
        return copy<std::uint8_t>(sequence, begin, out);
      case TokenType::kI8:
        return copy<std::int8_t>(sequence, begin, out);
      case TokenType::kI16:
        return copy<std::int16_t>(sequence, begin, out);
      case TokenType::kU16:
        return copy<std::uint16_t>(sequence, begin, out);
      case TokenType::kI32:
        return bin_.read(byte_of(sequence, begin), std::as_writable_bytes(out));
      case TokenType::kI64:
        return copy<std::int64_t>(sequence, begin, out);
    }
  }

  std::string where(std::int64_t sequence, std::int64_t token) const override {
    return fmt::format("{} byte {}", bin_.path(), byte_of(sequence, token));
  }

 private:
  std::int64_t byte_of(std::int64_t sequence, std::int64_t token) const {
    return index_.pointers[static_cast<std::size_t>(sequence)] +
           token * bytes_per_token(index_.type);
  }

  template <class Stored>
  void copy(std::int64_t sequence, std::int64_t begin, std::span<std::int32_t> out) const {
    std::vector<Stored> stored(out.size());
    bin_.read(byte_of(sequence, begin), std::as_writable_bytes(std::span(stored)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>(stored[i]);
      if (out[i] != stored[i]) {
        throw_error(ExitCode::kBadInput, "{}: token {} does not fit into 32 bits",
                    where(sequence, begin + static_cast<std::int64_t>(i)), stored[i]);
      }
    }
  }

  InputFile bin_;
  TokenIndex index_;
};

template <class T>
void put(AtomicFile& file, const std::vector<T>& values) {
  file.write(std::as_bytes(std::span(values)));
}

template <class Stored>
void write_tokens(AtomicFile& bin, const std::vector<std::vector<std::int32_t>>& documents) {
  for (const auto& document : documents) {
    put(bin, std::vector<Stored>(document.begin(), document.end()));
  }
}

void check_documents(const std::string& prefix,
                     const std::vector<std::vector<std::int32_t>>& documents, int vocab) {
  for (std::size_t d = 0; d < documents.size(); ++d) {
    for (const std::int32_t token : documents[d]) {
      if (token < 0 || token >= vocab) {
        throw_error(ExitCode::kBadInput, "{}: document {} holds token {}, outside [0, {})", prefix,
                    d, token, vocab);
      }
    }
    if (documents[d].size() > std::numeric_limits<std::int32_t>::max()) {
      throw_error(ExitCode::kBadInput, "{}: document {} has {} tokens, more than 32 bits count",
                  prefix, d, documents[d].size());
    }
  }
}

}  // namespace

std::unique_ptr<TokenFile> TokenFile::open(const std::string& prefix) {
  for (const std::string_view ending : {".bin", ".idx"}) {
    std::error_code unknown;
    if (prefix.ends_with(ending) && !std::filesystem::exists(prefix + ".bin", unknown))
      throw_error(ExitCode::kBadInput,
                  "cannot open {}.bin: a pair of files is named by its prefix; give {}", prefix,
                  prefix.substr(0, prefix.size() - ending.size()));
  }
  return std::make_unique<CheckedTokenFile>(prefix);
}

void write_token_file(const std::string& prefix,
                      const std::vector<std::vector<std::int32_t>>& documents, int vocab) {
  check_documents(prefix, documents, vocab);
  const TokenType type = vocab < kFirstWideVocab ? TokenType::kU16 : TokenType::kI32;

  AtomicFile bin(prefix + ".bin"), idx(prefix + ".idx");
  if (type == TokenType::kU16) {
    write_tokens<std::uint16_t>(bin, documents);
  } else {
    write_tokens<std::int32_t>(bin, documents);
  }
  bin.close();

  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers, boundaries = {0};
  std::int64_t at = 0;
  for (const auto& document : documents) {
    lengths.push_back(static_cast<std::int32_t>(document.size()));
    pointers.push_back(at);
    at += static_cast<std::int64_t>(document.size()) * bytes_per_token(type);
    boundaries.push_back(boundaries.back() + 1);
  }
  const std::uint64_t version = 1, counts[] = {lengths.size(), boundaries.size()};
  idx.write(std::as_bytes(std::span(kIndexMagic)));
  idx.write(std::as_bytes(std::span(&version, 1)));
  idx.write(std::as_bytes(std::span(&type, 1)));
  idx.write(std::as_bytes(std::span(counts)));
  put(idx, lengths);
  put(idx, pointers);
  put(idx, boundaries);
  idx.close();
  bin.commit();
  idx.commit();
}

}  // namespace tandem
