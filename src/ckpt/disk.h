// Files and folders as checkpoints need them: complete writes, fsync, and errors that carry errno's
// text and the path. Everything blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace tandem {

enum class Links { kFollow, kRefuse };

// An open file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// A regular file read by position (pread: a file that shrinks is an Error, not a SIGBUS).
// Immutable after opening: any thread.
class ReadFile {
 public:
  // Throws Error(kBadInput) with errno's text; kRefuse does not open a symbolic link.
  ReadFile(std::string path, Links links);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] std::uint32_t crc32c() const;  // of the whole file

 private:
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
};

// A new file written front to back; keeps the CRC-32C of what was written.
class WriteFile {
 public:
  explicit WriteFile(std::string path);  // must not exist
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  void sync();  // fsync
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t crc32c() const { return crc_; }

 private:
  std::string path_;
  Descriptor fd_;
  std::uint64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
};

// Makes the entries of a folder durable.
void sync_folder(const std::string& path);
// mkdir of the folder and the missing ones above it; each new entry is made durable.
void make_folders(const std::string& path);
void move_folder(const std::string& from, const std::string& to);
void remove_folder(const std::string& path);  // and all in it; absent is fine
[[nodiscard]] bool exists(const std::string& path);

}  // namespace tandem
