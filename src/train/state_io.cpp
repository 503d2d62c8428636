#include "tandem/train/state_io.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/json.h"

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

// What the shapes of tensors do not reveal: layers left over, and another order of samples.
void require_same_run(const std::string& path, const CheckpointInfo& info,
                      const RunConfig& config) {
  const std::string what = path + ", config";
  const Json written = parse_json(info.config_json, what);
  const Json& model = written.at("model", what);
  const std::int64_t layers = model.at("layers", what).as_int("model.layers");
  const bool tied = model.at("tied_embeddings", what).as_bool("model.tied_embeddings");
  if (layers != config.model.layers || tied != config.model.tied_embeddings)
    throw_error(ExitCode::kBadInput,
                "{} was written for another model: model.layers = {}, model.tied_embeddings = {}",
                path, layers, tied);
  if (info.seed != config.train.seed)
    throw_error(ExitCode::kUsage,
                "{} was written with train.seed = {}, and {} would give other samples from here "
                "on; set train.seed={}, or use another checkpoint.dir",
                path, info.seed, config.train.seed, info.seed);
  if (info.consumed_samples != info.step * config.train.global_batch)
    throw_error(ExitCode::kUsage,
                "{} has consumed {} samples in {} steps, which is not train.global_batch = {} a "
                "step; set train.global_batch={}, or use another checkpoint.dir",
                path, info.consumed_samples, info.step, config.train.global_batch,
                info.consumed_samples / std::max<std::int64_t>(1, info.step));
}

// Rank 0's finding, told to all; a failure there is every rank's failure.
std::string newest_checkpoint(World& world, const std::string& dir, Log& log) {
  std::string message = "none";
  if (world.rank() == 0) {
    try {
      if (const auto found = find_checkpoint(dir)) {
        for (const std::string& warning : found->warnings) log.warn("{}", warning);
        message = "path" + found->path;
      }
    } catch (const Error& error) {
      message = "fail" + std::string(error.what());
    }
  }
  message = world.broadcast(message, 0);
  const std::string kind = message.substr(0, 4), rest = message.substr(4);
  if (kind == "fail") throw_error(ExitCode::kBadInput, "{}", rest);
  return rest;
}

}  // namespace

void save_state(World& world, Device& device, Stream& stream, const Params& params,
                const Optimizer& optimizer, const RunConfig& config, const CheckpointInfo& info,
                const SaveHook& hook) {
  HostState state = make_host_state(params, optimizer);
  for_each_part(optimizer, state, [&](const View& view, std::vector<float>& host) {
    device.copy(stream, host.data(), view.data, view.bytes());
  });
  // hazard: the copies to the host before the file is written from them
  stream.sync();
  save_checkpoint(config.checkpoint.dir, info, state.owned, config.checkpoint.keep, peers_of(world),
                  hook);
}

std::optional<CheckpointInfo> load_state(World& world, Device& device, Stream& stream,
                                         const Params& params, Optimizer& optimizer,
                                         const RunConfig& config, Log& log) {
  const std::string path = newest_checkpoint(world, config.checkpoint.dir, log);
  if (path.empty()) return std::nullopt;
  HostState state = make_host_state(params, optimizer);
  CheckpointInfo info = load_checkpoint(path, state.all);
  require_same_run(path, info, config);
  for_each_part(optimizer, state, [&](const View& view, std::vector<float>& host) {
    device.copy(stream, view.data, host.data(), view.bytes());
  });
  optimizer.publish(stream);
  // hazard: the copies from host memory before it is freed
  stream.sync();
  return info;
}

}  // namespace tandem
