// manifest.json of a checkpoint folder: what was saved, under which config, in which files, and
// where every range of every tensor lies. It is written last; its final member is the CRC-32C of
// the text before that member, so a changed manifest is noticed like a changed shard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/ckpt/checkpoint.h"

namespace tandem {

inline constexpr char kManifestName[] = "manifest.json";

struct ShardFile {
  std::string name;  // a plain file name inside the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

struct PieceEntry {
  std::size_t file = 0;               // index into Manifest::files
  std::int64_t begin = 0, count = 0;  // elements
  [[nodiscard]] std::int64_t end() const { return begin + count; }
};

struct TensorEntry {
  std::int64_t size = 0;           // elements
  std::vector<PieceEntry> pieces;  // in order, without gap or overlap, from 0 to size
};

struct Manifest {
  CheckpointInfo info;
  std::vector<ShardFile> files;
  std::map<std::string, TensorEntry> tensors;
};

// Sorts the pieces of every tensor and checks that they cover it exactly once. Throws
// Error(kBadInput) naming `origin`, the tensor and the element where they do not.
void order_pieces(Manifest& manifest, const std::string& origin);

std::string to_text(const Manifest& manifest);
// Strict: checksum, version, types, ranges, plain file names, coverage. `origin` names the file.
Manifest parse_manifest(std::string_view text, const std::string& origin);
// Reads manifest.json of a checkpoint folder (no symbolic links).
Manifest read_manifest(const std::string& folder);

// Opens every file and compares its size, and on request its checksum, with the manifest. Throws
// Error(kBadInput) naming the first file that differs.
void check_files(const std::string& folder, const Manifest& manifest, bool verify_checksums);

// The name of a piece's state inside its shard: part is "master", "m" or "v".
std::string state_name(std::string_view tensor, std::int64_t begin, std::string_view part);

}  // namespace tandem
