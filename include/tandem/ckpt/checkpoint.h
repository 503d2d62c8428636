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
  std::string name;               // "layers.3.experts.gate_up"
  std::int64_t global_size = 0;   // elements of the whole tensor
  std::int64_t begin = 0;         // first element
  std::span<float> master, m, v;  // equal lengths
};

struct CheckpointInfo {
  std::int64_t step = 0;  // of the run
  std::int64_t consumed_samples = 0;
  std::uint64_t seed = 0;
  std::string config_json;           // the config it was written under
  std::string loss_scale_json = {};  // optim/loss_scale.h; empty: none
};

// The collective calls saving needs; World provides them (train/), tests use one rank.
struct CheckpointPeers {
  int rank = 0, size = 1;
  std::function<void()> barrier = [] {};
  // Everybody's string by rank, on every rank.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// Called after each step of a save with its name, so that tests can stop there:
//   every rank: "folder prepared", "shard written"
//   rank 0:     "manifest written", "old one set aside" (only when the step is saved again),
//               "renamed", "old ones removed"
using SaveHook = std::function<void(const char* stage)>;

// Every rank passes the pieces it owns; together they cover each tensor once (checked). Blocking,
// collective. Saving a step again replaces it; at every moment a complete checkpoint can be found.
// Afterwards removes complete checkpoints beyond the newest `keep` (at least two, and never the one
// just written). A failure on one rank, such as a full disk, throws SharedError(kBadInput) on all
// of them, with the rank, the path and errno's text; the earlier checkpoints are untouched then.
void save_checkpoint(const std::string& dir, const CheckpointInfo& info,
                     const std::vector<StatePiece>& pieces, int keep, const CheckpointPeers& peers,
                     const SaveHook& hook = {});

// Where the checkpoint of a step lies: "dir/step-00000042".
std::string checkpoint_path(const std::string& dir, std::int64_t step);

struct FoundCheckpoint {
  std::string path;
  CheckpointInfo info;
  std::vector<std::string> warnings;  // damaged ones passed over, each with the reason
};

// Newest complete checkpoint below `dir`. Verifies sizes always, checksums on request: that reads
// every byte, so one rank does it and tells the others the path. nullopt: none (also if the
// folder does not exist). Throws Error(kBadInput) if checkpoints exist but all are damaged.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& dir,
                                               bool verify_checksums = true);

// The checkpoint, also a damaged one, that `dir` is or lies in; nullopt: none, so that checkpoints
// may be kept there. Its manifest tells, whatever the folder is called.
struct EnclosingCheckpoint {
  std::string path;         // without symbolic links; relative to the working directory if `dir` is
  std::string folder;       // the one above it
  std::string name;         // what find_checkpoint() expects it to be called: "step-00000042"
  bool name_taken = false;  // `folder` has that already, this checkpoint or another
};
std::optional<EnclosingCheckpoint> enclosing_checkpoint(const std::string& dir);

// Fills the spans of all pieces from the files that hold them, under any layout, and returns what
// the manifest says. Every piece must be covered exactly; sizes must agree: otherwise throws
// Error(kBadInput) naming the tensor. Any rank, any thread, without the others.
CheckpointInfo load_checkpoint(const std::string& path, const std::vector<StatePiece>& pieces);

}  // namespace tandem
