// The experts' products of any backend against float64.
#pragma once

#include "reference.h"

namespace tandem::test {

// Offsets of experts that get `counts` rows.
inline Tensor offsets_of(const std::vector<std::int64_t>& counts) {
  Values v{0};
  for (const std::int64_t c : counts) v.push_back(v.back() + static_cast<double>(c));
  const auto n = static_cast<std::int64_t>(v.size());
  return tensor(DType::kI32, n, 1, std::move(v));
}

inline Values part(const Values& v, std::int64_t begin, std::int64_t count) {
  return {v.begin() + begin, v.begin() + begin + count};
}

inline void append(Expected& to, const Expected& more) {
  to.v.insert(to.v.end(), more.v.begin(), more.v.end());
  to.magnitude.insert(to.magnitude.end(), more.magnitude.begin(), more.magnitude.end());
}

// The experts' products, forward and both gradients, of experts with `counts` rows.
template <class Backend>
void check_grouped(Backend& backend, const std::vector<std::int64_t>& counts, std::int64_t n,
                   std::int64_t k, DType dtype) {
  CAPTURE(counts, n, k, name_of(dtype));
  Random random(5);
  const auto experts = static_cast<std::int64_t>(counts.size());
  const Tensor offsets = offsets_of(counts);
  const auto rows = static_cast<std::int64_t>(offsets.v.back());
  const Tensor x = random.values(dtype, rows, k), d_y = random.values(dtype, rows, n);
  const Tensor before = random.values(DType::kF32, experts * n, k);
  for (const bool trans_w : {false, true}) {
    const Tensor w = random.values(dtype, experts * (trans_w ? n : k), trans_w ? k : n);
    const View y = backend.room(dtype, rows, n);
    backend.run(
        ops::GroupedGemm{backend.put(x), backend.put(w), y, backend.put(offsets), counts, trans_w});
    Expected expected;
    for (std::int64_t e = 0, row = 0; e < experts; row += counts[static_cast<std::size_t>(e++)]) {
      const std::int64_t r = counts[static_cast<std::size_t>(e)];
      append(expected, reference::gemm(part(x.v, row * k, r * k), part(w.v, e * n * k, n * k), r, n,
                                       k, false, trans_w));
    }
    CHECK_CLOSE(backend.get(y), expected, root(k) + 2);
  }
  Expected expected;
  for (std::int64_t e = 0, row = 0; e < experts; row += counts[static_cast<std::size_t>(e++)]) {
    const std::int64_t r = counts[static_cast<std::size_t>(e)];
    append(expected, reference::gemm(part(d_y.v, row * n, r * n), part(x.v, row * k, r * k), n, k,
                                     r, true, false));
  }
  ops::GroupedGemmWeight weight{backend.put(d_y), backend.put(x), {}, backend.put(offsets), counts};
  // Nothing of what was there may be left, also where an expert has no rows.
  const auto size = static_cast<std::size_t>(experts * n * k);
  weight.d_w = backend.put(tensor(DType::kF32, experts * n, k, Values(size, NAN)));
  weight.accumulate = false;
  backend.run(weight);
  CHECK_CLOSE(backend.get(weight.d_w), expected, root(rows) + 2);

  weight.d_w = backend.put(before);
  weight.accumulate = true;
  backend.run(weight);
  for (std::size_t i = 0; i < before.v.size(); ++i) expected.add(i, before.v[i]);
  CHECK_CLOSE(backend.get(weight.d_w), expected, root(rows) + 2);
}

}  // namespace tandem::test
