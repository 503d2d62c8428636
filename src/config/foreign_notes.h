// What several tables of foreign names say. Private.
#pragma once

#include <string_view>

namespace tandem::config {

inline constexpr std::string_view kAlways = "always";
inline constexpr std::string_view kNoTensor =
    "there is no tensor parallelism; use parallel.ep, pp and dp";
inline constexpr std::string_view kNoRecompute =
    "nothing is recomputed; where memory is short, lower train.micro_batch or take more ranks";
inline constexpr std::string_view kNoTokenizer =
    "text is read as bytes, and data.kind=megatron reads tokens";
inline constexpr std::string_view kNoFp8 = "there is no FP8; train.dtype is fp32, bf16 or fp16";
inline constexpr std::string_view kOneImplementation =
    "there is one implementation of each op for each device";

}  // namespace tandem::config
