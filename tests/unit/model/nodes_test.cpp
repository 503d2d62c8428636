#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models.h"
#include "tandem/base/error.h"
#include "tandem/model/cost.h"
#include "tandem/model/memory.h"
#include "tandem/model/node.h"
#include "tandem/model/slot.h"

namespace tandem {
namespace {

using Key = std::pair<SlotKind, int>;  // slot of a layer

std::vector<SlotKind> all_slot_kinds() {
  std::vector<SlotKind> kinds;
  for (int i = 0; i < kNumSlotKinds; ++i) kinds.push_back(static_cast<SlotKind>(i));
  return kinds;
}

std::vector<NodeKind> all_node_kinds() {
  std::vector<NodeKind> kinds;
  for (int i = 0; i <= static_cast<int>(NodeKind::kHead); ++i)
    kinds.push_back(static_cast<NodeKind>(i));
  return kinds;
}

// The head's are not among them: its forward pass makes them.
bool gradients(SlotKind kind) {
  return kind == SlotKind::kGrads || kind == SlotKind::kGradsExperts;
}

constexpr Phase kPhases[] = {Phase::kFwd, Phase::kBwdInput, Phase::kBwdWeight};

// Runs declarations in the order of a model that is one chunk, and checks the life of every slot.
class Walk {
 public:
  void run(NodeKind kind, Phase phase, bool moe, int layer) {
    const NodeDesc* node = describe(kind, phase, moe);
    if (node == nullptr) return;
    INFO(name_of(kind) << "." << name_of(phase) << " of layer " << layer);
    std::set<Key> touched;
    for (const SlotUse& use : node->uses) {
      INFO("slot " << name_of(use.kind));
      if (persistent(use.kind)) {
        CHECK((use.kind == SlotKind::kParams) == (use.access == Access::kRead));
        continue;
      }
      const Key key(use.kind, chunk_wide(use.kind) ? -1 : layer + use.layer_offset);
      CHECK(touched.insert(key).second);  // one declaration a slot
      if (use.access == Access::kWrite) {
        CHECK(written_.insert(key).second);  // written once
      } else if (use.access == Access::kAccumulate) {
        CHECK(chunk_wide(use.kind));
        written_.insert(key);
      } else {
        CHECK(written_.count(key) == 1);
        read_.insert(key);
      }
    }
  }

  // Slots that were written for nobody.
  [[nodiscard]] std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const Key& key : written_)
      if (read_.count(key) == 0)
        names.push_back(std::string(name_of(key.first)) + "@" + std::to_string(key.second));
    return names;
  }

 private:
  std::set<Key> written_, read_;
};

void run_model(Walk& walk, const std::vector<bool>& moe) {
  const int layers = static_cast<int>(moe.size());
  walk.run(NodeKind::kEmbedding, Phase::kFwd, false, 0);
  for (int layer = 0; layer < layers; ++layer)
    for (const NodeKind kind : layer_nodes(moe[static_cast<std::size_t>(layer)]))
      walk.run(kind, Phase::kFwd, moe[static_cast<std::size_t>(layer)], layer);
  walk.run(NodeKind::kHead, Phase::kFwd, false, layers);
  walk.run(NodeKind::kHead, Phase::kBwdInput, false, layers);
  for (int layer = layers - 1; layer >= 0; --layer) {
    const bool is_moe = moe[static_cast<std::size_t>(layer)];
    const auto nodes = layer_nodes(is_moe);
    for (auto kind = nodes.rbegin(); kind != nodes.rend(); ++kind) {
      walk.run(*kind, Phase::kBwdInput, is_moe, layer);
      walk.run(*kind, Phase::kBwdWeight, is_moe, layer);
    }
  }
  walk.run(NodeKind::kEmbedding, Phase::kBwdWeight, false, 0);
}

ModelDims small_dims(DType dtype) {
  RunConfig config = test::small_run(2, 1, 4, 2);
  config.train.dtype = dtype;
  return make_dims(config);
}

double gflops_per_token(const ModelConfig& model) {
  RunConfig config;
  config.model = model;
  config.train.seq_len = 4096;
  return flops_per_token(config) / 1e9;
}

}  // namespace

TEST_CASE("every slot is written once, before it is read, and for a reader") {
  const std::vector<std::vector<bool>> models = {
      {true, true}, {false, false}, {false, true, false}, {true, false, true}, {}};
  for (const auto& moe : models) {
    Walk walk;
    run_model(walk, moe);
    CHECK(walk.unread() == std::vector<std::string>{});
  }
}

TEST_CASE("a layer is cut at the expert all-to-alls") {
  std::string moe, dense;
  for (const NodeKind kind : layer_nodes(true)) moe += std::string(name_of(kind)) + " ";
  for (const NodeKind kind : layer_nodes(false)) dense += std::string(name_of(kind)) + " ";
  CHECK(moe == "attention counts dispatch experts combine aggregate ");
  CHECK(dense == "attention mlp ");
}

TEST_CASE("nodes describe themselves, on the lane their work belongs to") {
  const std::set<NodeKind> on_ep = {NodeKind::kCounts, NodeKind::kDispatch, NodeKind::kCombine};
  for (const NodeKind kind : all_node_kinds())
    for (const Phase phase : kPhases)
      for (const bool moe : {false, true}) {
        const NodeDesc* node = describe(kind, phase, moe);
        CAPTURE(name_of(kind), name_of(phase));
        if (node == nullptr) continue;
        CHECK(node->kind == kind);
        CHECK(node->phase == phase);
        CHECK(node->lane == (on_ep.count(kind) != 0 ? Lane::kEp : Lane::kCompute));
        // A backward-weight node can move: nobody but the gradients may depend on it.
        if (phase == Phase::kBwdWeight)
          for (const SlotUse& use : node->uses)
            CHECK((use.access == Access::kRead || gradients(use.kind)));
        // Forward work of one micro-batch and backward work of another share no gradient.
        if (phase == Phase::kFwd)
          for (const SlotUse& use : node->uses) CHECK(!gradients(use.kind));
      }
  CHECK(describe(NodeKind::kCounts, Phase::kBwdInput, true) == nullptr);
  CHECK(describe(NodeKind::kDispatch, Phase::kBwdWeight, true) == nullptr);
  CHECK(describe(NodeKind::kEmbedding, Phase::kBwdInput, false) == nullptr);
  for (const NodeKind kind : {NodeKind::kAttention, NodeKind::kExperts, NodeKind::kMlp})
    CHECK(describe(kind, Phase::kBwdWeight, true) != nullptr);
}

TEST_CASE("names are distinct and said where the kind is declared") {
  std::set<std::string_view> names;
  for (const SlotKind kind : all_slot_kinds()) names.insert(name_of(kind));
  CHECK(names.size() == static_cast<std::size_t>(kNumSlotKinds));
  CHECK(name_of(SlotKind::kX) == "x");
  CHECK(name_of(SlotKind::kCombined) == "combined");
  CHECK(name_of(SlotKind::kDx) == "d_x");
  CHECK(name_of(SlotKind::kDH) == "d_h");
  CHECK(name_of(SlotKind::kParams) == "params");
  CHECK(name_of(NodeKind::kHead) == "head");
  CHECK(name_of(Phase::kBwdWeight) == "bwd_weight");
  CHECK(name_of(Lane::kHost) == "host");
  CHECK(name_of(Dir::kBwd) == "B");
}

TEST_CASE("dimensions of one rank and micro-batch") {
  const ModelDims d = small_dims(DType::kBF16);
  CHECK(d.tokens == 22);
  CHECK(d.sequences == 2);
  CHECK(d.seq_len == 11);
  CHECK(d.local_experts == 2);
  CHECK(d.ep == 2);
  CHECK(d.qkv_width() == 60 + 2 * 20);
  CHECK(d.routed() == 66);
  CHECK(d.dtype == DType::kBF16);
  CHECK_THROWS_WITH(make_dims(test::small_run(1, 1, 3, 3)), Catch::Contains("divides the experts"));
}

TEST_CASE("tensors of a slot are aligned, apart, and inside it") {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const QkNorm qk_norm : {QkNorm::kNone, QkNorm::kPerHead, QkNorm::kFull})
      for (const SlotKind kind : all_slot_kinds())
        for (const std::int64_t received : {0, 1, 37}) {
          CAPTURE(name_of(kind), received);
          const SlotLayout layout = slot_layout(kind, small_dims(dtype), qk_norm, received);
          CHECK(layout.tensors.empty() == persistent(kind));
          CHECK(layout.bytes % 64 == 0);
          std::int64_t end = 0, used = 0;
          for (const SlotTensor& t : layout.tensors) {
            CHECK(t.offset % 64 == 0);
            CHECK(t.offset >= end);
            end = t.offset + t.rows * t.cols * static_cast<std::int64_t>(size_of(t.dtype));
            used += end - t.offset;
          }
          CHECK(layout.bytes >= end);
          CHECK(layout.bytes - used < 64 * static_cast<std::int64_t>(layout.tensors.size()) + 1);
        }
}

TEST_CASE("slots sized by counts grow with the received rows, the others do not") {
  const ModelDims d = small_dims(DType::kBF16);
  const std::set<SlotKind> counted = {SlotKind::kExpertIn,   SlotKind::kExpertSaved,
                                      SlotKind::kExpertOut,  SlotKind::kDExpertOut,
                                      SlotKind::kExpertGrad, SlotKind::kDExpertIn};
  for (const SlotKind kind : all_slot_kinds()) {
    CAPTURE(name_of(kind));
    const auto bytes = [&](std::int64_t received) {
      return slot_layout(kind, d, QkNorm::kNone, received).bytes;
    };
    CHECK(sized_by_counts(kind) == (counted.count(kind) != 0));
    if (sized_by_counts(kind)) {
      CHECK(bytes(0) == 0);
      CHECK(bytes(64) > 0);
      CHECK(bytes(6400) == 100 * bytes(64));  // 64 rows of anything fill whole cache lines
    } else {
      CHECK(bytes(0) == bytes(6400));
    }
    CHECK(expected_slot_bytes(kind, d, QkNorm::kNone) == bytes(66));
  }
  CHECK_THROWS_AS(slot_layout(SlotKind::kExpertIn, d, QkNorm::kNone, -1), Error);
}

TEST_CASE("tensors inside the slots") {
  const ModelDims d = small_dims(DType::kBF16);
  const auto text = [&](SlotKind kind, QkNorm qk_norm = QkNorm::kNone) {
    std::string all;
    for (const SlotTensor& t : slot_layout(kind, d, qk_norm, 5).tensors)
      all += fmt::format("{} {}x{} {}; ", t.name, t.rows, t.cols, name_of(t.dtype));
    return all;
  };
  for (const SlotKind kind : {SlotKind::kX, SlotKind::kH, SlotKind::kDx, SlotKind::kDH})
    CHECK(text(kind) == "x 22x24 bf16; ");
  CHECK(text(SlotKind::kAttnSaved) ==
        "rstd 22x1 fp32; qkv 22x100 bf16; qkv_raw 0x80 bf16; qk_rstd 0x2 fp32; out 22x60 bf16; "
        "lse 22x6 fp32; ");
  CHECK(text(SlotKind::kAttnSaved, QkNorm::kPerHead) ==
        "rstd 22x1 fp32; qkv 22x100 bf16; qkv_raw 22x80 bf16; qk_rstd 22x8 fp32; out 22x60 bf16; "
        "lse 22x6 fp32; ");
  CHECK_THAT(text(SlotKind::kAttnSaved, QkNorm::kFull), Catch::Contains("qk_rstd 22x2 fp32"));
  CHECK(text(SlotKind::kRouterSaved) ==
        "rstd 22x1 fp32; probs 22x4 fp32; chosen 22x3 i32; weights 22x3 fp32; rows 22x3 i32; "
        "z 22x1 fp32; load 4x1 fp32; ");
  CHECK(text(SlotKind::kPooledLoad) == "load 4x1 fp32; prob_sum 4x1 fp32; ");
  CHECK(text(SlotKind::kCountsSend) == "counts 4x1 i32; ");
  CHECK(text(SlotKind::kCountsRecv) == "counts 2x2 i32; offsets 3x1 i32; ");
  for (const SlotKind kind : {SlotKind::kPermuted, SlotKind::kDPermuted})
    CHECK(text(kind) == "rows 66x24 bf16; weights 66x1 fp32; ");
  for (const SlotKind kind : {SlotKind::kExpertIn, SlotKind::kDExpertIn})
    CHECK(text(kind) == "rows 5x24 bf16; weights 5x1 fp32; ");
  for (const SlotKind kind : {SlotKind::kExpertOut, SlotKind::kDExpertOut})
    CHECK(text(kind) == "rows 5x24 bf16; ");
  for (const SlotKind kind : {SlotKind::kCombined, SlotKind::kDCombined})
    CHECK(text(kind) == "rows 66x24 bf16; ");
  CHECK(text(SlotKind::kExpertSaved) == "gate_up 5x28 bf16; ");
  CHECK(text(SlotKind::kExpertGrad) == "d_gate_up 5x28 bf16; act 5x14 bf16; ");
  CHECK(text(SlotKind::kMlpSaved) == "rstd 22x1 fp32; gate_up 22x68 bf16; ");
  CHECK(text(SlotKind::kMlpGrad) == "d_gate_up 22x68 bf16; act 22x34 bf16; ");
  CHECK(text(SlotKind::kHeadSaved) == "rstd 22x1 fp32; d_normed 22x24 bf16; ");
  CHECK(text(SlotKind::kAttnGrad) == "d_qkv 22x100 bf16; d_h 22x24 bf16; ");
}

TEST_CASE("slots saved for the backward pass") {
  const std::set<SlotKind> saved = {
      SlotKind::kX,          SlotKind::kAttnSaved, SlotKind::kH,           SlotKind::kRouterSaved,
      SlotKind::kCountsRecv, SlotKind::kExpertIn,  SlotKind::kExpertSaved, SlotKind::kMlpSaved,
      SlotKind::kHeadSaved,  SlotKind::kPooledLoad};
  for (const SlotKind kind : all_slot_kinds()) {
    CAPTURE(name_of(kind));
    CHECK(saved_for_backward(kind) == (saved.count(kind) != 0));
  }
}

TEST_CASE("FLOPs per token are the published ones") {
  CHECK(gflops_per_token(test::preset("qwen3-30b-a3b")) == Approx(23.006).margin(0.0005));
  CHECK(gflops_per_token(test::preset("qwen3-235b-a22b")) == Approx(148.035).margin(0.0005));
  CHECK(gflops_per_token(test::preset("mixtral-8x7b")) == Approx(79.7).margin(0.05));
  CHECK(gflops_per_token(test::preset("olmoe-1b-7b")) == Approx(7.87).margin(0.005));
}

TEST_CASE("the FLOPs of a model's nodes are those of its tokens and the router") {
  RunConfig config = test::small_run(1, 1, 2, 2);
  config.model.moe_every = 2;  // MoE and dense layers
  const ModelDims d = make_dims(config);
  double sum = 0.0, router = 0.0;
  const auto add = [&](NodeKind kind, bool moe) {
    double forward = 0.0, backward = 0.0;
    for (const Phase phase : kPhases) {
      if (describe(kind, phase, moe) == nullptr) continue;
      const double flops = node_flops(kind, phase, moe, d, static_cast<double>(d.routed()));
      (phase == Phase::kFwd ? forward : backward) += flops;
    }
    CAPTURE(name_of(kind));
    CHECK(backward == (kind == NodeKind::kHead ? 0.0 : 2.0 * forward));
    sum += forward + backward;
  };
  int moe_layers = 0;
  add(NodeKind::kEmbedding, false);
  for (int layer = 0; layer < config.model.layers; ++layer) {
    const bool moe = config.model.is_moe(layer);
    moe_layers += moe ? 1 : 0;
    for (const NodeKind kind : layer_nodes(moe)) add(kind, moe);
  }
  add(NodeKind::kHead, false);
  REQUIRE(moe_layers > 0);
  REQUIRE(moe_layers < config.model.layers);
  router = 6.0 * moe_layers * static_cast<double>(d.tokens * d.hidden * d.experts);
  // Whole numbers below 2^53: exact.
  CHECK(sum - router == flops_per_token(config) * static_cast<double>(d.tokens));
}

TEST_CASE("expert FLOPs follow the received rows") {
  const ModelDims d = small_dims(DType::kF32);
  const auto flops = [&](double rows) {
    return node_flops(NodeKind::kExperts, Phase::kBwdInput, true, d, rows);
  };
  CHECK(flops(0.0) == 0.0);
  CHECK(flops(5.0) == 2.0 * 5.0 * 3.0 * 24.0 * 14.0);
}

TEST_CASE("bytes of a balanced all-to-all leave out a rank's own rows") {
  ModelDims d = small_dims(DType::kBF16);
  CHECK(alltoall_bytes(d, 66.0) == 33.0 * 24.0 * 2.0);
  d.ep = 1;
  CHECK(alltoall_bytes(d, 66.0) == 0.0);
}

}  // namespace tandem
