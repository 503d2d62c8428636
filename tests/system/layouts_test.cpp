// One fp32 config on one rank and under every layout: the losses of 20 steps are those of one rank
// but for rounding.
#include <cmath>

#include "training.h"

namespace tandem {
namespace {

constexpr double kTolerance = 1e-5;  // what docs/NUMERICS.md promises over 20 steps

struct Layout {
  const char* name;
  int ranks;
  Overrides overrides;
};

double relative(double a, double b) {
  if (a == b) return 0.0;
  const double difference = std::abs(a - b) / std::abs(b);
  return std::isnan(difference) ? HUGE_VAL : difference;
}

// Largest relative difference over the steps.
double difference(const Training& a, const Training& b, double StepReport::*value) {
  REQUIRE(a.steps.size() == b.steps.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.steps.size(); ++i)
    worst = std::max(worst, relative(a.steps[i].*value, b.steps[i].*value));
  return worst;
}

void require_agreement(const Training& a, const Training& b) {
  CHECK(difference(a, b, &StepReport::loss) <= kTolerance);
  CHECK(difference(a, b, &StepReport::aux) <= kTolerance);
  CHECK(difference(a, b, &StepReport::grad_norm) <= kTolerance);
}

void require_learning(const Training& training) {
  REQUIRE(training.steps.size() == 20);
  // The gradient and the update matter to what is compared: the loss has moved a thousand
  // tolerances away from where it began.
  REQUIRE(training.result.last_loss < 0.98 * training.result.first_loss);
}

void compare(const Overrides& model, const std::vector<Layout>& layouts) {
  const Training one = train(1, model);
  require_learning(one);
  REQUIRE((one.steps.front().aux > 0.0) == (tiny(1, model).model.experts > 0));
  for (const Layout& layout : layouts) {
    INFO(layout.name);
    require_agreement(train(layout.ranks, model + layout.overrides), one);
  }
}

const Layout kPp2{"pp2", 2, {"parallel.pp=2"}};
const Layout kPp2Plain{"pp2 without overlap", 2, {"parallel.pp=2", "overlap.enabled=false"}};
const Layout kVpp2{"pp2 vpp2", 2, {"parallel.pp=2", "parallel.vpp=2"}};
const Layout kEp2{"ep2", 2, {"parallel.ep=2"}};
const Layout kDp2{"dp2", 2, {}};
const Layout kPp4{"pp4", 4, {"parallel.pp=4"}};
const Layout kEp4{"ep4", 4, {"parallel.ep=4"}};
const Layout kAll{"pp2 vpp2 ep2", 4, {"parallel.pp=2", "parallel.vpp=2", "parallel.ep=2"}};

TEST_CASE("every layout of one config has the losses of one rank") {
  compare({}, {kPp2, kPp2Plain, kVpp2, kEp2, kDp2, kPp4, kAll, {"dp4 ep2", 4, {"parallel.ep=2"}}});
}

TEST_CASE("layouts agree with dense layers first, last and between") {
  compare({"model.moe_pattern=[0,1,0,1]"}, {kVpp2, kAll, kPp4});
  compare({"model.moe_pattern=[1,1,1,0]"}, {kPp2, kAll, kPp4});
  compare({"model.experts=0"}, {kPp2, kVpp2, kDp2, kPp4});
}

TEST_CASE("layouts agree with uneven partitions and chunks that hold no layer") {
  compare({}, {{"pp2, 3 + 1", 2, {"parallel.pp=2", "parallel.partition=[3,1]"}},
               {"pp2, 4 + 0", 2, {"parallel.pp=2", "parallel.partition=[4,0]"}},
               {"pp2 vpp2, 0 + 2 + 0 + 2",
                2,
                {"parallel.pp=2", "parallel.vpp=2", "parallel.partition=[0,2,0,2]"}},
               {"pp4, 2 + 0 + 2 + 0", 4, {"parallel.pp=4", "parallel.partition=[2,0,2,0]"}},
               {"pp3 spread", 3, {"parallel.pp=3", "parallel.spread=spread"}}});
}

TEST_CASE("layouts agree for any number of micro-batches") {
  const auto batch = [](int sequences) {
    return Overrides{fmt::format("train.global_batch={}", sequences)};
  };
  compare(batch(1), {kPp2, kPp4});                     // M = 1
  compare(batch(2), {kPp2, kVpp2, kDp2, kEp2, kPp4});  // M = pp, M < pp
  compare(batch(3), {kPp2, kPp4});                     // no multiple of pp
  compare(batch(5), {kPp2,                             // interleaved: 5 = 3 + 2
                     {"pp2 vpp2, groups of 3", 2,
                      kVpp2.overrides + Overrides{"parallel.microbatch_group=3"}}});
}

TEST_CASE("layouts agree with one local expert a rank and with ranks that get no token") {
  compare({}, {kEp4});  // 4 experts
  // Two tokens a rank and one expert each: somewhere in 20 steps a rank receives nothing.
  const Overrides few = {"model.topk=1", "model.norm_topk_prob=false", "train.seq_len=2",
                         "train.global_batch=4", "model.aux_loss_coef=0"};
  const Training one = train(1, few);
  const Training four = train(4, few + kEp4.overrides);
  require_agreement(four, one);
  std::int64_t dead = 0;  // one expert a rank, one micro-batch: a dead expert is an idle rank
  for (const StepReport& step : four.steps) dead += step.dead_experts;
  CHECK(dead > 20);
  require_agreement(train(2, few + kEp2.overrides), one);
  // The first micro-batch stores the experts' gradients, also of those without tokens, and later
  // ones add to them. Poison is what is there before.
  const Overrides more = few + Overrides{"train.global_batch=16"};  // four micro-batches a rank
  require_agreement(train(4, more + kEp4.overrides + Overrides{"train.poison_memory=true"}),
                    train(1, more));
}

TEST_CASE("layouts agree with tied embeddings, full QK norm, z loss and raw routing weights") {
  compare({"model.tied_embeddings=true", "model.qk_norm=full"}, {kPp2, kVpp2, kDp2, kAll, kPp4});
  compare({"model.qk_norm=per_head", "model.z_loss_coef=0.001", "model.norm_topk_prob=false",
           "optimizer.clip=0"},
          {kPp2, kAll});
}

TEST_CASE("layouts agree with the pooled auxiliary loss, which needs one stage") {
  // The pooled loss is a mean over micro-batches of a product of means: micro-batches are the same
  // in both layouts, so it agrees as everything else does.
  compare({"model.aux_loss=pooled", "model.aux_loss_coef=0.1"}, {kEp2, kDp2});
}

TEST_CASE("bf16 follows fp32") {
  const Training reference = train(1, {});
  for (const Layout& layout : {kEp2, kAll}) {
    INFO(layout.name);
    // A bf16 number has 8 significant bits; the loss is a mean of logits that carry that error.
    const Training bf16 = train(layout.ranks, layout.overrides + Overrides{"train.dtype=bf16"});
    CHECK(difference(bf16, reference, &StepReport::loss) <= 0.01);
    CHECK(difference(bf16, reference, &StepReport::loss) > 1e-6);  // it is another precision
  }
}

}  // namespace
}  // namespace tandem
