// The bytes of TensorBoard event files: TFRecord frames around hand-encoded Event protobufs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/trace/metrics.h"

namespace tandem::tensorboard {

std::uint32_t crc32c(std::string_view bytes);  // Castagnoli

// length u64 | masked crc of it u32 | payload | masked crc of it u32, all little-endian
std::string framed(std::string_view payload);

// Event payloads.
std::string version_event(double wall_time_s);  // the first record of every file
std::string scalars_event(double wall_time_s, std::int64_t step, const MetricList& metrics);

}  // namespace tandem::tensorboard
