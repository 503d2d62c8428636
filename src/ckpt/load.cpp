#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "disk.h"
#include "folders.h"
#include "manifest.h"
#include "safetensors_types.h"
#include "tandem/base/error.h"
#include "tandem/ckpt/checkpoint.h"

namespace tandem {
namespace {

// One stored piece and the part of a wanted piece that comes from it.
struct Transfer {
  const StatePiece* wanted;
  PieceEntry stored;

  [[nodiscard]] std::int64_t begin() const { return std::max(wanted->begin, stored.begin); }
  [[nodiscard]] std::int64_t end() const {
    return std::min(wanted->begin + static_cast<std::int64_t>(wanted->master.size()), stored.end());
  }
};

const TensorEntry& find_tensor(const Manifest& manifest, const std::string& path,
                               const StatePiece& piece) {
  const auto it = manifest.tensors.find(piece.name);
  if (it == manifest.tensors.end()) {
    throw_error(ExitCode::kBadInput,
                "{}: there is no tensor {}; the checkpoint was written for another model", path,
                piece.name);
  }
  if (it->second.size != piece.global_size) {
    throw_error(ExitCode::kBadInput,
                "{}: tensor {} has {} elements, the model expects {}; the checkpoint was written "
                "for another model",
                path, piece.name, it->second.size, piece.global_size);
  }
  return it->second;
}

void check_wanted(const std::string& path, const StatePiece& piece) {
  const auto count = static_cast<std::int64_t>(piece.master.size());
  TANDEM_CHECK(piece.m.size() == piece.master.size(), "{}: {}", path, piece.name);
  TANDEM_CHECK(piece.v.size() == piece.master.size(), "{}: {}", path, piece.name);
  TANDEM_CHECK(piece.begin >= 0, "{}: {}", path, piece.name);
  TANDEM_CHECK(piece.begin + count <= piece.global_size, "{}: {}", path, piece.name);
}

// What must be read from each file; only the files that hold something wanted appear.
std::map<std::size_t, std::vector<Transfer>> plan_transfers(const Manifest& manifest,
                                                            const std::string& path,
                                                            const std::vector<StatePiece>& pieces) {
  std::map<std::size_t, std::vector<Transfer>> by_file;
  for (const StatePiece& piece : pieces) {
    check_wanted(path, piece);
    const TensorEntry& tensor = find_tensor(manifest, path, piece);
    // The stored pieces cover the tensor without gaps, so those that meet the range cover it.
    auto stored = std::upper_bound(
        tensor.pieces.begin(), tensor.pieces.end(), piece.begin,
        [](std::int64_t begin, const PieceEntry& entry) { return begin < entry.end(); });
    for (; stored != tensor.pieces.end(); ++stored) {
      const Transfer transfer{&piece, *stored};
      if (transfer.begin() >= transfer.end()) break;
      by_file[stored->file].push_back(transfer);
    }
  }
  return by_file;
}

void read_part(const SafetensorsReader& shard, const std::string& shard_path,
               const Transfer& transfer, const char* part, std::span<float> out) {
  const std::string name = state_name(transfer.wanted->name, transfer.stored.begin, part);
  const TensorInfo* tensor = shard.find(name);
  if (tensor == nullptr) {
    throw_error(ExitCode::kBadInput, "{}: tensor {} is missing", shard_path, name);
  }
  if (tensor->dtype != DType::kF32 ||
      tensor->shape != std::vector<std::int64_t>{transfer.stored.count}) {
    throw_error(ExitCode::kBadInput, "{}: tensor {} is not F32 with shape [{}]", shard_path, name,
                transfer.stored.count);
  }
  const auto skip = static_cast<std::size_t>(transfer.begin() - transfer.wanted->begin);
  const auto count = static_cast<std::size_t>(transfer.end() - transfer.begin());
  const auto offset = static_cast<std::uint64_t>(transfer.begin() - transfer.stored.begin);
  shard.read(*tensor, offset * sizeof(float), std::as_writable_bytes(out.subspan(skip, count)));
}

ReadFile open_shard(const std::string& folder, const ShardFile& file) {
  ReadFile opened(folder + "/" + file.name, Links::kRefuse);
  if (opened.size() != file.bytes) {
    throw_error(ExitCode::kBadInput, "{} has {} bytes, the manifest says {}", opened.path(),
                opened.size(), file.bytes);
  }
  return opened;
}

FoundCheckpoint examine(const StepFolder& folder, bool verify_checksums) {
  const Manifest manifest = read_manifest(folder.path);
  if (manifest.info.step != folder.step) {
    throw_error(ExitCode::kBadInput, "{}/{} is of step {}", folder.path, kManifestName,
                manifest.info.step);
  }
  check_files(folder.path, manifest, verify_checksums);
  return {folder.path, manifest.info, {}};
}

}  // namespace

void check_files(const std::string& folder, const Manifest& manifest, bool verify_checksums) {
  for (const ShardFile& file : manifest.files) {
    const ReadFile opened = open_shard(folder, file);
    if (!verify_checksums) continue;
    const std::uint32_t crc = opened.crc32c();
    if (crc != file.crc32c) {
      throw_error(ExitCode::kBadInput, "{} has the checksum {:08x}, the manifest says {:08x}",
                  opened.path(), crc, file.crc32c);
    }
  }
}

std::optional<FoundCheckpoint> find_checkpoint(const std::string& dir, bool verify_checksums) {
  const std::vector<StepFolder> folders = list_steps(dir);
  std::vector<std::string> warnings;
  for (const StepFolder& folder : folders) {
    try {
      FoundCheckpoint found = examine(folder, verify_checksums);
      found.warnings = std::move(warnings);
      return found;
    } catch (const Error& error) {
      warnings.push_back(
          fmt::format("checkpoint {} is damaged and not used: {}", folder.path, error.what()));
    }
  }
  if (folders.empty()) return std::nullopt;
  throw_error(ExitCode::kBadInput,
              "{}: all checkpoints are damaged; move them away to start from the beginning\n  {}",
              dir, fmt::join(warnings, "\n  "));
}

CheckpointInfo load_checkpoint(const std::string& path, const std::vector<StatePiece>& pieces) {
  const Manifest manifest = read_manifest(path);
  for (const auto& [file, transfers] : plan_transfers(manifest, path, pieces)) {
    ReadFile opened = open_shard(path, manifest.files[file]);
    const std::string shard_path = opened.path();
    const auto shard = read_safetensors(std::move(opened));
    for (const Transfer& transfer : transfers) {
      read_part(*shard, shard_path, transfer, "master", transfer.wanted->master);
      read_part(*shard, shard_path, transfer, "m", transfer.wanted->m);
      read_part(*shard, shard_path, transfer, "v", transfer.wanted->v);
    }
  }
  return manifest.info;
}

}  // namespace tandem
