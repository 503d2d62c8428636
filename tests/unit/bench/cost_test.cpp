// FLOPs and bytes of ops against values computed by hand.
#include <catch2/catch.hpp>

#include "tandem/nn/node_ctx.h"
#include "tandem/ops/launch.h"

namespace tandem {
namespace {

View view(DType dtype, std::int64_t rows, std::int64_t cols) {
  static std::byte byte;  // costs read shapes; only null data means "absent"
  return {&byte, dtype, rows, cols};
}
View f32(std::int64_t rows, std::int64_t cols = 1) {
  return view(DType::kF32, rows, cols);
}
View bf16(std::int64_t rows, std::int64_t cols = 1) {
  return view(DType::kBF16, rows, cols);
}
View i32(std::int64_t rows, std::int64_t cols = 1) {
  return view(DType::kI32, rows, cols);
}

}  // namespace

TEST_CASE("products count a multiply and an add per element of the inner dimension") {
  const ops::Gemm forward{.a = bf16(3, 5), .b = bf16(7, 5), .c = bf16(3, 7), .trans_b = true};
  CHECK(ops::flops(forward) == 2 * 3 * 7 * 5);
  CHECK(ops::bytes(forward) == 2 * (3 * 5 + 7 * 5 + 3 * 7));
  const ops::Gemm weight{
      .a = bf16(3, 7), .b = bf16(3, 5), .c = f32(7, 5), .trans_a = true, .accumulate = true};
  CHECK(ops::flops(weight) == 2 * 3 * 7 * 5);
  CHECK(ops::bytes(weight) == 2 * (3 * 7 + 3 * 5) + 2 * 4 * 7 * 5);  // the sum is read and written

  // 11 rows over 2 experts with [6, 4] weights each.
  const ops::GroupedGemm grouped{bf16(11, 4), bf16(2 * 6, 4), bf16(11, 6), i32(3), {}, true};
  CHECK(ops::flops(grouped) == 2 * 11 * 6 * 4);
  CHECK(ops::bytes(grouped) == 2 * (11 * 4 + 12 * 4 + 11 * 6) + 4 * 3);
  const ops::GroupedGemmWeight experts{bf16(11, 6), bf16(11, 4), f32(2 * 6, 4), i32(3)};
  CHECK(ops::flops(experts) == 2 * 11 * 6 * 4);
  ops::GroupedGemmWeight stored = experts;
  stored.accumulate = false;
  CHECK(ops::bytes(experts) - ops::bytes(stored) == 4 * (2 * 6 * 4));
}

TEST_CASE("attention counts the half of the scores that the causal mask leaves") {
  // 2 sequences of 8 tokens, 4 heads of 16: a product of scores is 2 * 16 * 8 * 64 / 2 FLOPs.
  const ops::HeadShape shape{4, 2, 16, 8};
  const double product = 2.0 * 16 * 8 * 64 / 2;
  const View qkv = bf16(16, 64 + 2 * 32), out = bf16(16, 64), lse = f32(16, 4);
  CHECK(ops::flops(ops::AttentionFwd{qkv, out, lse, shape}) == 2 * product);
  CHECK(ops::flops(ops::AttentionBwd{qkv, out, lse, out, qkv, shape}) == 5 * product);
  CHECK(ops::bytes(ops::AttentionFwd{qkv, out, lse, shape}) == 2 * 16 * (128 + 64) + 4 * 16 * 4);
  CHECK(ops::bytes(ops::Rope{qkv, shape, 1e4, false}) == 2 * 2 * 16 * (64 + 32));  // not v
}

TEST_CASE("tensors that are absent cost nothing") {
  const View x = bf16(5, 8), w = bf16(8), rstd = f32(5), d_w = f32(8);
  const ops::RmsNormBwd with{x, x, w, rstd, x, x, d_w}, without{x, x, w, rstd, {}, x, d_w};
  CHECK(ops::bytes(with) - ops::bytes(without) == 2 * 5 * 8);
  CHECK(ops::flops(with) == 0);
  const ops::SwiGluFwd routed{bf16(5, 16), f32(5), bf16(5, 8)}, dense{bf16(5, 16), {}, bf16(5, 8)};
  CHECK(ops::bytes(routed) - ops::bytes(dense) == 4 * 5);
}

TEST_CASE("an op list keeps ops in order and runs them on a real stream") {
  const auto device = make_cpu_device({});
  float a[2] = {1, 2}, sum[2] = {0, 0};
  OpList list;
  launch(list, ops::Add{{a, DType::kF32, 2, 1}, {a, DType::kF32, 2, 1}, {sum, DType::kF32, 2, 1}});
  launch(list, ops::AddTo{{a, DType::kF32, 2, 1}, {sum, DType::kF32, 2, 1}});
  CHECK_THROWS_AS(list.sync(), Error);
  const std::vector<ListedOp> ops = list.take();
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].cost.name == "add");
  CHECK(ops[1].cost.name == "add_to");
  CHECK(sum[1] == 0.0F);
  const auto stream = device->make_stream("real", 0);
  for (const ListedOp& op : ops) op.run(*stream);
  stream->sync();
  CHECK(sum[1] == 6.0F);
}

}  // namespace tandem
