#include <algorithm>
#include <limits>
#include <numeric>

#include "rules.h"
#include "tandem/base/units.h"

namespace tandem::config {
namespace {

std::string or_else(const std::string& way, const std::string& without) {
  return way.empty() ? without : way;
}

constexpr std::int64_t kMostSamples = std::numeric_limits<std::int32_t>::max();  // of an evaluation

void check_partition(const RunConfig& config, const WayOut& way, Violations& out) {
  const ParallelConfig& p = config.parallel;
  const int stages = p.pp * p.vpp;
  const std::string shown = fmt::format("[{} entries]", p.partition.size());
  if (p.partition.size() != static_cast<std::size_t>(stages)) {
    out.add("parallel.partition", shown,
            fmt::format("needs pp x vpp = {} entries, one per virtual stage", stages),
            either(fmt::format("give {} entries", stages), way.set()));
    return;
  }
  const std::int64_t sum = std::accumulate(p.partition.begin(), p.partition.end(), std::int64_t{0});
  if (sum != config.model.layers)
    out.add("parallel.partition", shown,
            fmt::format("adds up to {} layers, but model.layers is {}", sum, config.model.layers),
            either("make the two equal", way.set()));
}

void check_layers(const RunConfig& config, const WayOut& way, Violations& out) {
  const ParallelConfig& p = config.parallel;
  const int stages = p.pp * p.vpp;
  if (!p.partition.empty()) {
    check_partition(config, way, out);
  } else if (p.spread == LayerSpread::kExact && config.model.layers % stages != 0) {
    const int above = (config.model.layers / stages + 1) * stages;
    out.add(
        "model.layers", config.model.layers,
        fmt::format("does not divide over pp x vpp = {} virtual stages", stages),
        way.settings.empty() || way.settings == "parallel.spread=spread"
            ? fmt::format("set parallel.spread=spread, give parallel.partition, or take {} layers",
                          above)
            : way.set());
  }
}

void check_expert_ranks(const RunConfig& config, const WayOut& way, Violations& out) {
  const ParallelConfig& p = config.parallel;
  if (p.dp % p.ep != 0)
    out.add(
        "parallel.ep", p.ep,
        fmt::format("does not divide the {} it is drawn from", counted(p.dp, "data-parallel rank")),
        or_else(either(way.set(), way.start()), fmt::format("give a divisor of {}", p.dp)));
  if (config.model.experts == 0 && p.ep > 1)
    out.add("parallel.ep", p.ep, "there are no experts to share, as model.experts is 0",
            or_else(way.set(), "set parallel.ep=1"));
  if (config.model.experts > 0 && config.model.experts % p.ep != 0)
    out.add("parallel.ep", p.ep,
            fmt::format("does not divide model.experts = {}", config.model.experts),
            or_else(way.set(), fmt::format("give a divisor of {}", config.model.experts)));
}

void check_group(const RunConfig& config, std::int64_t microbatches, const WayOut& way,
                 Violations& out) {
  const ParallelConfig& p = config.parallel;
  const std::int64_t group = p.microbatch_group;
  if (group < p.pp) {
    out.add("parallel.microbatch_group", group,
            fmt::format("below parallel.pp = {}, the interleaved pipeline would starve", p.pp),
            or_else(way.set(), fmt::format("give at least {}, or 0", p.pp)));
  } else if (group > microbatches) {
    out.add("parallel.microbatch_group", group,
            fmt::format("more than the {} of a step", counted(microbatches, "micro-batch")),
            or_else(way.set(), "raise train.global_batch, or set parallel.vpp=1"));
  } else if (const std::int64_t rest = microbatches % group; rest != 0 && rest < p.pp) {
    out.add(
        "parallel.microbatch_group", group,
        fmt::format(
            "leaves a last group of {} of the {} micro-batches, fewer than parallel.pp = {}", rest,
            microbatches, p.pp),
        or_else(way.set(), fmt::format("choose train.global_batch so that the last group is empty "
                                       "or has at least {}",
                                       p.pp)));
  }
}

// A batch of at most `most` micro-batches that check_group() accepts too.
std::string way_to_fewer(const ParallelConfig& p, int layers, std::int64_t most,
                         std::int64_t sequences) {
  const bool interleaved = p.vpp > 1 && p.pp > 1;
  if (interleaved && most < std::max(p.pp, p.microbatch_group))
    return fmt::format(
        "parallel.vpp = {} needs {} of them: lower parallel.pp, or set parallel.vpp=1 and give at "
        "most {}",
        p.vpp, std::max(p.pp, p.microbatch_group), most_microbatches(layers, p.pp) * sequences);
  const std::int64_t rest = interleaved ? most % p.microbatch_group : 0;
  const std::int64_t accepted = rest < p.pp ? most - rest : most;
  return fmt::format("give at most {}, or raise train.micro_batch or parallel.dp",
                     accepted * sequences);
}

void check_programs(const RunConfig& config, std::int64_t microbatches, const WayOut& way,
                    Violations& out) {
  const ParallelConfig& p = config.parallel;
  const std::int64_t most = most_microbatches(config.model.layers, std::int64_t{p.pp} * p.vpp);
  const std::int64_t sequences = std::int64_t{config.train.micro_batch} * config.parallel.dp;
  if (microbatches > most)
    out.add("train.global_batch", config.train.global_batch,
            fmt::format("makes {} micro-batches a step, and the programs of more than {} are too "
                        "large to hold",
                        microbatches, most),
            way.settings.empty() || way.settings.starts_with("train.global_batch=")
                ? way_to_fewer(p, config.model.layers, most, sequences)
                : way.set());
  const std::int64_t most_eval =
      std::max<std::int64_t>(1, std::min(most, kMostSamples / sequences));
  if (config.train.eval_batches > most_eval)
    out.add("train.eval_batches", config.train.eval_batches,
            "the programs of so many micro-batches are too large to hold",
            fmt::format("give at most {}", most_eval));
}

}  // namespace

void check_layout(const RunConfig& config, const WayOut& way, Violations& out) {
  const ParallelConfig& p = config.parallel;
  if (p.vpp > 1 && p.pp == 1)
    out.add("parallel.vpp", p.vpp, "interleaving needs more than one pipeline stage",
            or_else(way.set(), "set parallel.vpp=1"));
  check_layers(config, way, out);
  check_expert_ranks(config, way, out);
  if (config.model.aux_loss == AuxLossKind::kPooled && config.model.experts > 0 &&
      config.model.aux_loss_coef > 0 && p.pp > 1)
    out.add("model.aux_loss", "pooled",
            fmt::format("pools over all layers, but they lie on parallel.pp = {} stages", p.pp),
            or_else(either(way.per_layer.empty() ? "" : "set " + way.per_layer, way.set()),
                    "set model.aux_loss=per_layer"));
}

void check_batch(const RunConfig& config, const std::string& dp_origin, const WayOut& way,
                 Violations& out) {
  const std::int64_t sequences = std::int64_t{config.train.micro_batch} * config.parallel.dp;
  if (config.train.global_batch % sequences != 0) {
    const std::int64_t above = (config.train.global_batch / sequences + 1) * sequences;
    out.add("train.global_batch", config.train.global_batch,
            fmt::format("not a multiple of train.micro_batch x parallel.dp = {} x {}{}",
                        config.train.micro_batch, config.parallel.dp, dp_origin),
            or_else(way.set(), fmt::format("give {}", above)));
    return;
  }
  check_programs(config, config.train.global_batch / sequences, way, out);
  if (config.parallel.vpp > 1 && config.parallel.pp > 1) {
    check_group(config, config.train.global_batch / sequences, way, out);
  }
}

}  // namespace tandem::config
