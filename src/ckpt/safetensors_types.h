// What reader and writer of safetensors agree on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "disk.h"
#include "tandem/ckpt/safetensors.h"

namespace tandem {

// Element types and their names in the file, by the order in which writers place tensors.
inline constexpr std::array<std::pair<DType, std::string_view>, 6> kTensorTypes = {{
    {DType::kI64, "I64"},
    {DType::kF32, "F32"},
    {DType::kI32, "I32"},
    {DType::kBF16, "BF16"},
    {DType::kF16, "F16"},
    {DType::kU8, "U8"},
}};

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::uint64_t kLengthBytes = 8;  // the header length in front of the header
inline constexpr char kMetadataKey[] = "__metadata__";

// SafetensorsReader::open on a file that is open already.
std::unique_ptr<SafetensorsReader> read_safetensors(ReadFile file);

}  // namespace tandem
