// A regular file opened for reading by position. Reads go through pread, not a mapping, so a file
// that shrinks while it is in use is an Error and not a SIGBUS. Immutable after opening: any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem {

class InputFile {
 public:
  // Throws Error(kBadInput) with errno's text if `path` cannot be opened or is not a regular file.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // Fills `out` from byte `offset`. Throws Error(kBadInput) if the file ends before that.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_;
  std::int64_t size_ = 0;
};

}  // namespace tandem
