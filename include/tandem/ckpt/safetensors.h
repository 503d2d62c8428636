// Reader and writer of safetensors files, strict on input. A reader is immutable after opening and
// may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/dtype.h"

namespace tandem {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, relative to the data section
};

class SafetensorsReader {
 public:
  // Checks everything the format demands (header size, duplicate names, gaps, overlaps, sizes,
  // trailing bytes) before any data is read. Throws Error(kBadInput) naming file and field.
  // Symbolic links are followed.
  static std::unique_ptr<SafetensorsReader> open(const std::string& path);
  virtual ~SafetensorsReader() = default;
  [[nodiscard]] virtual const std::vector<TensorInfo>& tensors() const = 0;  // in data order
  [[nodiscard]] virtual const TensorInfo* find(const std::string& name) const = 0;
  [[nodiscard]] virtual const std::map<std::string, std::string>& metadata() const = 0;
  // Copies bytes [offset, offset + out.size()) of a tensor; the range must lie inside it.
  virtual void read(const TensorInfo& tensor, std::uint64_t offset,
                    std::span<std::byte> out) const = 0;
};

struct TensorToWrite {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // row-major, little endian
};

// Writes and fsyncs; `path` must not exist. `metadata` gains "format": "pt" if it has no format.
// Returns the CRC-32C of the whole file. Throws Error(kBadInput) with errno's text when the disk is
// full or the file cannot be written; a part of it may be left.
std::uint32_t write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                                const std::map<std::string, std::string>& metadata);

// CRC-32C; pass the previous result to continue over the next bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
std::uint32_t crc32c_of_file(const std::string& path);

}  // namespace tandem
