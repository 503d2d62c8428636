// Checkpoints: one safetensors shard per rank plus one JSON manifest, written to a temporary
// folder, fsynced, renamed to step-00000042, fsynced again. A folder without a valid manifest, or
// whose files' sizes or checksums disagree with it, is not a checkpoint.
//
// Pieces carry the parameter's global name and element range, so any layout can load any other's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/dtype.h"

namespace tandem {

// A contiguous range of a global parameter tensor with its optimizer state, in host memory.
struct StatePiece {
  std::string name;                    // "layers.3.experts.gate_up"
  std::int64_t global_size = 0;        // elements of the whole tensor
  std::int64_t begin = 0;              // first element
  std::span<float> master, m, v;       // equal lengths
};

struct CheckpointInfo {
  std::int64_t step = 0;               // optimizer steps taken
  std::int64_t consumed_samples = 0;
  std::uint64_t seed = 0;
  std::string config_json;             // the config it was written under
};

// The collective calls saving needs; World provides them (train/), tests use one rank.
struct CheckpointPeers {
  int rank = 0, size = 1;
  std::function<void()> barrier = [] {};
  std::function<std::vector<std::string>(const std::string&)> gather =
      [](const std::string& mine) { return std::vector<std::string>{mine}; };
};

// Called after each step of a save with its name ("shard written", "renamed", ...): tests kill there.
using SaveHook = std::function<void(const char* stage)>;

// Every rank passes the pieces it owns; together they cover each tensor once. Blocking, collective.
// Removes complete checkpoints beyond the newest `keep` afterwards.
void save_checkpoint(const std::string& dir, const CheckpointInfo& info,
                     const std::vector<StatePiece>& pieces, int keep, const CheckpointPeers& peers,
                     const SaveHook& hook = {});

struct FoundCheckpoint {
  std::string path;
  CheckpointInfo info;
  std::vector<std::string> warnings;   // damaged ones passed over, each with the reason
};

// Newest complete checkpoint below `dir`; verifies sizes and checksums. nullopt: none (also if the
// folder does not exist). Throws Error(kBadInput) if checkpoints exist but all are damaged.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& dir);

// Fills the spans of all pieces. Every piece must be covered exactly; sizes must agree.
void load_checkpoint(const std::string& path, const std::vector<StatePiece>& pieces);

}  // namespace tandem
