#include "tandem/train/state_io.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "non_finite.h"
#include "same_run.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/comm/shared_error.h"

namespace tandem {
namespace {

// Host copies of one rank's shards (master, m, v per shard) and the ranges of global tensors that
// lie in them.
struct HostState {
  std::vector<std::vector<float>> storage;
  std::vector<StatePiece> all;    // every range
  std::vector<StatePiece> owned;  // without the last stage's copy of a tied embedding
};

constexpr std::size_t kParts = 3;

bool tied_copy(const Param& param) {
  return param.kind == ParamKind::kHead && param.name == "embedding";
}

void add_pieces(HostState& state, const ParamTable& table, const OptimizerShard& shard,
                std::size_t first_storage) {
  const ParamBucket& bucket = table.buckets[shard.bucket];
  for (const Param& param : table.params) {
    if (param.chunk != bucket.chunk || param.group != bucket.group) continue;
    const std::int64_t begin = std::max(param.offset, shard.begin);
    const std::int64_t end = std::min(param.offset + param.size(), shard.begin + shard.count);
    if (begin >= end) continue;
    const auto part = [&](std::size_t which) {
      return std::span<float>(state.storage[first_storage + which])
          .subspan(static_cast<std::size_t>(begin - shard.begin),
                   static_cast<std::size_t>(end - begin));
    };
    const StatePiece piece{param.name, param.global_size, param.global_begin + begin - param.offset,
                           part(0),    part(1),           part(2)};
    state.all.push_back(piece);
    if (!tied_copy(param)) state.owned.push_back(piece);
  }
}

HostState make_host_state(const Params& params, const Optimizer& optimizer) {
  HostState state;
  for (const OptimizerShard& shard : optimizer.shards())
    for (std::size_t part = 0; part < kParts; ++part)
      state.storage.emplace_back(static_cast<std::size_t>(shard.count));
  std::size_t first_storage = 0;
  for (const OptimizerShard& shard : optimizer.shards()) {
    add_pieces(state, params.table(), shard, first_storage);
    first_storage += kParts;
  }
  return state;
}

// copy(device view, host vector) for every part of every shard.
template <class Copy>
void for_each_part(const Optimizer& optimizer, HostState& state, const Copy& copy) {
  std::size_t at = 0;
  for (const OptimizerShard& shard : optimizer.shards())
    for (const View& view : {shard.master, shard.m, shard.v}) copy(view, state.storage[at++]);
}

CheckpointPeers peers_of(World& world) {
  return {world.rank(), world.size(), [&world] { world.barrier(); },
          [&world](const std::string& mine) { return world.gather(mine); }};
}

// The newest checkpoint, which rank 0 finds, verifies and compares with this run; empty: none.
std::string newest_checkpoint(World& world, const RunConfig& config, Log& log) {
  return world.broadcast(
      together(world,
               [&]() -> std::string {
                 if (world.rank() != 0) return {};
                 const auto found = find_checkpoint(config.checkpoint.dir);
                 if (!found) return {};
                 for (const std::string& warning : found->warnings) log.warn("{}", warning);
                 const std::string changes = require_same_run(found->path, found->info, config);
                 if (!changes.empty())
                   log.warn("the run continues with other values than {} was written with:{}",
                            found->path, changes);
                 return found->path;
               }),
      0);
}

// A run could never recover from it, and would resume from it. Collective.
void require_finite(World& world, const HostState& state, DType storage, const RunConfig& config,
                    std::int64_t step, std::optional<std::int64_t> newest) {
  const auto found = world.gather(first_non_finite(state.all, storage));
  for (std::size_t rank = 0; rank < found.size(); ++rank)
    if (!found[rank].empty())
      throw_shared(ExitCode::kTraining,
                   "step {} is not saved: on rank {}, {}. {} keeps the checkpoints it has. {}",
                   step, rank, found[rank], config.checkpoint.dir, update_advice(newest, config));
}

// "set train.dtype=fp32, with which it was written".
std::string dtype_that_holds(const std::string& path, const CheckpointInfo& info, DType storage) {
  const Json config = parse_json(info.config_json, path + ", config");
  const Json* train = config.find("train");
  const Json* dtype = train == nullptr ? nullptr : train->find("dtype");
  if (dtype != nullptr && dtype->as_string("train.dtype") != name_of(storage))
    return fmt::format("set train.dtype={}, with which it was written",
                       dtype->as_string("train.dtype"));
  return storage == DType::kF16 ? "set train.dtype=bf16 or fp32" : "set train.dtype=fp32";
}

// The same of what another run, or other hands, have written. A weight that is too large for this
// run's dtype alone is no damage.
CheckpointInfo load_finite(const std::string& path, const HostState& state, DType storage) {
  CheckpointInfo info = load_checkpoint(path, state.all);
  const std::string found = first_non_finite(state.all, DType::kF32);
  if (!found.empty())
    throw_error(ExitCode::kBadInput,
                "{} holds what no training recovers from: {}; remove this folder to go on from an "
                "earlier checkpoint",
                path, found);
  const std::string too_large = first_non_finite(state.all, storage);
  if (!too_large.empty())
    throw_error(ExitCode::kUsage, "{} holds a weight that is too large for train.dtype={}: {}; {}",
                path, name_of(storage), too_large, dtype_that_holds(path, info, storage));
  return info;
}

// Errors about the folder of checkpoints get the way out.
template <class Body>
bool in_folder(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    throw_error(error.code(),
                "no checkpoint could be saved: {}; checkpoint.dir must be a folder that all ranks "
                "share and can write, or empty to train without checkpoints",
                error.what());
  }
}

// A run that was given a checkpoint, to continue from it, would find none below it.
void require_no_checkpoint(const std::string& dir) {
  const auto around = enclosing_checkpoint(dir);
  if (!around) return;
  throw_error(
      ExitCode::kBadInput,
      "checkpoint.dir = {}: {} is a checkpoint, not a folder of checkpoints; {}set "
      "checkpoint.dir={}",
      dir, around->path,
      around->name_taken ? "" : fmt::format("call it {}/{} and ", around->folder, around->name),
      around->folder);
}

void warn_of_older_run(const std::string& dir, Log& log) {
  try {
    if (const auto found = find_checkpoint(dir, /*verify_checksums=*/false))
      log.warn(
          "checkpoint.resume=false, but {} is there already: a later run with resume continues "
          "from the highest step it finds; move the old checkpoints away, or use another "
          "checkpoint.dir",
          found->path);
  } catch (const Error&) {
    // All damaged: nothing that a later run could mistake for this one's.
  }
}

}  // namespace

std::unique_ptr<CheckpointClaim> claim_checkpoints(World& world, const RunConfig& config,
                                                   Log& log) {
  const std::string& dir = config.checkpoint.dir;
  if (dir.empty()) return nullptr;
  return together(world, [&]() -> std::unique_ptr<CheckpointClaim> {
    if (world.rank() != 0) return nullptr;
    std::error_code unknown;
    const auto there = std::filesystem::status(dir, unknown);
    if (!std::filesystem::exists(there) && std::filesystem::is_symlink(dir, unknown))
      throw_error(ExitCode::kBadInput,
                  "checkpoint.dir = {}: a symbolic link to {}, which is not there; make that "
                  "folder, or name another",
                  dir, std::filesystem::read_symlink(dir, unknown).string());
    if (std::filesystem::exists(there) && !std::filesystem::is_directory(there))
      throw_error(ExitCode::kBadInput, "checkpoint.dir = {}: not a folder; name another", dir);
    require_no_checkpoint(dir);
    auto claim = std::make_unique<CheckpointClaim>(dir);
    if (!claim->warning().empty()) log.warn("{}", claim->warning());
    if (!config.checkpoint.resume) warn_of_older_run(dir, log);
    return claim;
  });
}

void require_savable(World& world, const RunConfig& config) {
  const std::string& dir = config.checkpoint.dir;
  if (dir.empty()) return;
  const bool leads = world.rank() == 0;
  const auto on = [&](bool here, const auto& body) {
    together(world, [&] { return !here || in_folder(body); });
  };
  on(leads, [&] { begin_trial(dir); });
  try {
    on(true, [&] { write_trial(dir, world.rank()); });
  } catch (...) {
    try {
      if (leads) end_trial(dir);
    } catch (const Error&) {
      // The failure that is being reported matters more.
    }
    throw;
  }
  on(leads, [&] { end_trial(dir); });
}

void save_state(World& world, Device& device, Stream& stream, const Params& params,
                const Optimizer& optimizer, const RunConfig& config, const CheckpointInfo& info,
                std::optional<std::int64_t> newest, const SaveHook& hook) {
  HostState state = make_host_state(params, optimizer);
  for_each_part(optimizer, state, [&](const View& view, std::vector<float>& host) {
    device.copy(stream, host.data(), view.data, view.bytes());
  });
  // hazard: the copies to the host before the file is written from them
  stream.sync();
  require_finite(world, state, params.dtype(), config, info.step, newest);
  save_checkpoint(config.checkpoint.dir, info, state.owned, config.checkpoint.keep, peers_of(world),
                  hook);
}

std::optional<CheckpointInfo> load_state(World& world, Device& device, Stream& stream,
                                         const Params& params, Optimizer& optimizer,
                                         const RunConfig& config, Log& log) {
  const std::string path = newest_checkpoint(world, config, log);
  if (path.empty()) return std::nullopt;
  HostState state = make_host_state(params, optimizer);
  CheckpointInfo info = together(world, [&] { return load_finite(path, state, params.dtype()); });
  for_each_part(optimizer, state, [&](const View& view, std::vector<float>& host) {
    device.copy(stream, view.data, host.data(), view.bytes());
  });
  optimizer.publish(stream);
  // hazard: the copies from host memory before it is freed
  stream.sync();
  return info;
}

}  // namespace tandem
