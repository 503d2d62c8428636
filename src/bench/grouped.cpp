// The experts' products of one layer on one rank, under three ways the router may spread the rows.
#include <cmath>
#include <list>

#include "benches.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/model/slot.h"
#include "tensors.h"

namespace tandem::bench {
namespace {

constexpr double kWeightScale = 0.02;
constexpr double kLogLoad = 0.5;  // standard deviation of the logarithm of an expert's load
constexpr std::uint64_t kSeed = 1234;

// One layer's tensors; the spreads share them. Results are apart from operands, so that values keep
// their size however often a product runs.
struct Experts {
  View rows, gate_up, act;  // [R, H], [R, 2I], [R, I]
  View to_rows, to_gate_up, to_act;
  View w_gate_up, w_down, d_w_gate_up, d_w_down;
};

Experts make_experts(Tensors& t, const ModelDims& d, std::int64_t received) {
  const std::int64_t e = d.local_experts;
  return {t.normal(d.dtype, received, d.hidden),
          t.normal(d.dtype, received, 2 * d.moe_ffn),
          t.normal(d.dtype, received, d.moe_ffn),
          t.normal(d.dtype, received, d.hidden),
          t.normal(d.dtype, received, 2 * d.moe_ffn),
          t.normal(d.dtype, received, d.moe_ffn),
          t.normal(d.dtype, e * 2 * d.moe_ffn, d.hidden, kWeightScale),
          t.normal(d.dtype, e * d.hidden, d.moe_ffn, kWeightScale),
          t.normal(DType::kF32, e * 2 * d.moe_ffn, d.hidden),
          t.normal(DType::kF32, e * d.hidden, d.moe_ffn)};
}

// In the order of a training step, so that no product finds its operands in the caches more than
// it does there.
void add_products(std::vector<Candidate>& list, const std::string& group, const Experts& x,
                  View offsets, std::span<const std::int64_t> host_rows) {
  using ops::GroupedGemm;
  using ops::GroupedGemmWeight;
  list.push_back(
      candidate(group, "gate_up fwd",
                GroupedGemm{x.rows, x.w_gate_up, x.to_gate_up, offsets, host_rows, true}));
  list.push_back(candidate(group, "down fwd",
                           GroupedGemm{x.act, x.w_down, x.to_rows, offsets, host_rows, true}));
  list.push_back(candidate(group, "down bwd_input",
                           GroupedGemm{x.rows, x.w_down, x.to_act, offsets, host_rows, false}));
  list.push_back(
      candidate(group, "gate_up bwd_input",
                GroupedGemm{x.gate_up, x.w_gate_up, x.to_rows, offsets, host_rows, false}));
  for (const bool adds : {false, true}) {
    const std::string how = storing_or_adding(adds);
    list.push_back(
        candidate(group, "down bwd_weight" + how,
                  GroupedGemmWeight{x.rows, x.act, x.d_w_down, offsets, host_rows, adds}));
    list.push_back(
        candidate(group, "gate_up bwd_weight" + how,
                  GroupedGemmWeight{x.gate_up, x.rows, x.d_w_gate_up, offsets, host_rows, adds}));
  }
}

}  // namespace

std::vector<std::int32_t> expert_counts(Spread spread, std::int64_t experts, std::int64_t total) {
  const std::int64_t busy = spread == Spread::kEmptyExpert && experts > 1 ? experts - 1 : experts;
  std::vector<double> load(static_cast<std::size_t>(busy), 1.0);
  double sum = 0;
  for (std::size_t e = 0; e < load.size(); ++e) {
    if (spread != Spread::kBalanced)
      load[e] = std::exp(kLogLoad * static_cast<double>(philox_normal(kSeed, 0, e)));
    sum += load[e];
  }
  // Cumulated shares are rounded, so the counts sum to the total.
  std::vector<std::int32_t> counts(static_cast<std::size_t>(experts), 0);
  double before = 0;
  std::int64_t given = 0;
  for (std::size_t e = 0; e < load.size(); ++e) {
    before += load[e];
    const std::int64_t until = std::llround(before / sum * static_cast<double>(total));
    counts[e] = static_cast<std::int32_t>(until - given);
    given = until;
  }
  return counts;
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& counts) {
  std::vector<std::int32_t> offsets = {0};
  for (const std::int32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

Measured bench_grouped(Device& device, Stream& stream, const RunConfig& config, int repeats) {
  const ModelDims d = make_dims(config);
  if (d.experts == 0)
    throw_error(ExitCode::kUsage,
                "bench grouped: the model has no experts (model.experts = 0): give a "
                "mixture-of-experts config");
  Tensors tensors(device, stream);
  const std::int64_t received = d.routed();  // of all ranks' rows, this rank's even share
  const Experts experts = make_experts(tensors, d, received);
  std::vector<Candidate> list;
  std::list<std::vector<std::int64_t>> host_rows;  // the candidates read them
  for (const auto& [spread, name] :
       {std::pair{Spread::kBalanced, "balanced"}, std::pair{Spread::kRandom, "random"},
        std::pair{Spread::kEmptyExpert, "random, one empty"}}) {
    const std::vector<std::int32_t> counts = expert_counts(spread, d.local_experts, received);
    const View offsets = tensors.ints(offsets_of(counts));
    add_products(list, name, experts, offsets,
                 host_rows.emplace_back(counts.begin(), counts.end()));
  }
  for (Candidate& one : list) one.shape += fmt::format(", {} experts", d.local_experts);
  tensors.fill_all();
  return measure(device, stream, d.dtype, repeats, list);
}

}  // namespace tandem::bench
