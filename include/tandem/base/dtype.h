// Element types and View, the plain non-owning tensor every op and slot is described with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kF32: case DType::kI32: return 4;
    case DType::kBF16: case DType::kF16: return 2;
    case DType::kI64: return 8;
    case DType::kU8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::kF32: return "fp32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kU8: return "u8";
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name);  // "fp32" -> kF32

// A float of these bytes is NaN, in fp32, bf16 and fp16: poison for memory that nobody may read yet.
inline constexpr unsigned char kNanByte = 0xFF;

// A row-major, contiguous [rows, cols] tensor in device memory. Non-owning, trivially copyable.
// A vector has cols = 1; a stack of matrices [n, r, c] is held as rows = n * r.
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 1;

  [[nodiscard]] std::int64_t size() const { return rows * cols; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype); }
  template <class T> [[nodiscard]] T* as() const { return static_cast<T*>(data); }

  // Rows [begin, begin + count), sharing memory.
  [[nodiscard]] View slice(std::int64_t begin, std::int64_t count) const {
    auto* base = static_cast<std::byte*>(data);
    if (base != nullptr) base += static_cast<std::size_t>(begin * cols) * size_of(dtype);
    return {base, dtype, count, cols};
  }
};

}  // namespace tandem
