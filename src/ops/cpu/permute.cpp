// Moving tokens into expert-major order and back.
#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

template <class T>
void sum_rows(const ops::UnpermuteSum& op, std::int64_t t) {
  const std::int64_t n = op.out.cols, topk = op.rows.cols;
  const std::int32_t* rows = op.rows.as<std::int32_t>() + t * topk;
  const T* in = op.in.as<T>();
  const T* add = op.add.data == nullptr ? nullptr : op.add.as<T>() + t * n;
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    Vec total{};
    for (std::int64_t j = 0; j < topk; ++j) total += load(in + rows[j] * n + i, lanes);
    if (add != nullptr) total += load(add + i, lanes);
    store(op.out.as<T>() + t * n + i, total, lanes);
  });
}

}  // namespace

void run(const ops::PermutePlan& op, Workers&) {
  const std::int64_t experts = op.counts.size(), pairs = op.chosen.size();
  expect(op.rows, DType::kI32, op.chosen.rows, op.chosen.cols, "permute plan: rows");
  TANDEM_CHECK(op.counts.dtype == DType::kI32, "permute plan: dtype of counts");
  check_ids(op.chosen, experts, "permute plan: chosen");
  const auto* chosen = op.chosen.as<std::int32_t>();
  auto* counts = op.counts.as<std::int32_t>();
  auto* rows = op.rows.as<std::int32_t>();
  std::fill_n(counts, experts, 0);
  for (std::int64_t i = 0; i < pairs; ++i) ++counts[chosen[i]];
  struct Next;
  auto* next = scratch<Next, std::int32_t>(experts);
  std::int32_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    next[e] = begin;
    begin += counts[e];
  }
  for (std::int64_t i = 0; i < pairs; ++i) rows[i] = next[chosen[i]]++;
  if (op.load.data == nullptr) return;
  TANDEM_CHECK(op.load.size() == experts, "permute plan: load");
  for (std::int64_t e = 0; e < experts; ++e) op.load.as<float>()[e] = static_cast<float>(counts[e]);
}

void run(const ops::PermuteRows& op, Workers& workers) {
  const std::int64_t n = op.x.cols, topk = op.rows.cols;
  expect(op.out, op.x.dtype, op.out.rows, n, "permute: out");
  TANDEM_CHECK(op.rows.rows == op.x.rows, "permute: rows");
  check_ids(op.rows, op.out.rows, "permute: rows");
  with_element(op.x, "permute: x", [&]<class T>(Tag<T>) {
    for_rows(workers, op.x.rows, 2 * topk * n, [&](std::int64_t t) {
      for (std::int64_t j = 0; j < topk; ++j)
        std::copy_n(op.x.as<T>() + t * n, n,
                    op.out.as<T>() + op.rows.as<std::int32_t>()[t * topk + j] * n);
    });
  });
}

void run(const ops::PermuteWeights& op, Workers&) {
  expect(op.rows, DType::kI32, op.weights.rows, op.weights.cols, "permute weights: rows");
  check_ids(op.rows, op.out.size(), "permute weights: rows");
  for (std::int64_t i = 0; i < op.rows.size(); ++i)
    op.out.as<float>()[op.rows.as<std::int32_t>()[i]] = op.weights.as<float>()[i];
}

void run(const ops::UnpermuteSum& op, Workers& workers) {
  expect(op.out, op.in.dtype, op.rows.rows, op.in.cols, "unpermute: out");
  if (op.add.data != nullptr)
    expect(op.add, op.in.dtype, op.out.rows, op.out.cols, "unpermute: add");
  check_ids(op.rows, op.in.rows, "unpermute: rows");
  with_element(op.in, "unpermute: in", [&]<class T>(Tag<T>) {
    for_rows(workers, op.out.rows, (op.rows.cols + 2) * op.out.cols,
             [&](std::int64_t t) { sum_rows<T>(op, t); });
  });
}

void run(const ops::UnpermuteWeights& op, Workers&) {
  expect(op.rows, DType::kI32, op.out.rows, op.out.cols, "unpermute weights: rows");
  check_ids(op.rows, op.in.size(), "unpermute weights: rows");
  for (std::int64_t i = 0; i < op.rows.size(); ++i)
    op.out.as<float>()[i] = op.in.as<float>()[op.rows.as<std::int32_t>()[i]];
}

void run(const ops::ExpertOffsets& op, Workers&) {
  const std::int64_t sources = op.counts.rows, experts = op.counts.cols;
  TANDEM_CHECK(op.offsets.size() == experts + 1, "expert offsets: one more than experts");
  const auto* counts = op.counts.as<std::int32_t>();
  auto* offsets = op.offsets.as<std::int32_t>();
  std::int32_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    offsets[e] = begin;
    for (std::int64_t s = 0; s < sources; ++s) begin += counts[s * experts + e];
  }
  offsets[experts] = begin;
}

}  // namespace tandem::cpu
