// Flat ops: additions, casts, and the sums of whole tensors.
#include "simd.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

// Calls body(from, to) with typed pointers of both views.
template <class Body>
void with_elements(const View& from, const View& to, const char* what, const Body& body) {
  with_element(from, what, [&]<class A>(Tag<A>) {
    with_element(to, what, [&]<class B>(Tag<B>) { body(from.as<A>(), to.as<B>()); });
  });
}

// The sum of term(vector) over the view in double: lanes in pairs of double vectors, blocks in
// order.
template <class Term>
double total_of(const View& view, Workers& workers, const Term& term) {
  const std::int64_t blocks = (view.size() + kFlatBlock - 1) / kFlatBlock;
  struct Partials;
  double* partials = scratch<Partials, double>(std::max<std::int64_t>(1, blocks));
  with_element(view, "sum", [&]<class T>(Tag<T>) {
    for_blocks(workers, view.size(), [&](std::int64_t begin, std::int64_t end) {
      double lane[kLanes] = {};
      for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
        float x[kLanes];
        narrow(x, load(view.as<T>() + begin + i, lanes));
        for (int l = 0; l < kLanes; ++l) lane[l] += term(static_cast<double>(x[l]));
      });
      double total = 0;
      for (const double x : lane) total += x;
      partials[begin / kFlatBlock] = total;
    });
  });
  double total = 0;
  for (std::int64_t i = 0; i < blocks; ++i) total += partials[i];
  return total;
}

}  // namespace

void run(const ops::Add& op, Workers& workers) {
  expect(op.b, op.a.dtype, op.a.rows, op.a.cols, "add: b");
  expect(op.out, op.a.dtype, op.a.rows, op.a.cols, "add: out");
  with_element(op.a, "add: a", [&]<class T>(Tag<T>) {
    for_blocks(workers, op.a.size(), [&](std::int64_t begin, std::int64_t end) {
      for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
        const Vec a = load(op.a.as<T>() + begin + i, lanes);
        store(op.out.as<T>() + begin + i, a + load(op.b.as<T>() + begin + i, lanes), lanes);
      });
    });
  });
}

void run(const ops::AddTo& op, Workers& workers) {
  TANDEM_CHECK(op.from.size() == op.to.size(), "add to: sizes");
  TANDEM_CHECK(op.to.dtype == DType::kF32, "add to: accumulates in fp32");
  float* to = op.to.as<float>();
  with_element(op.from, "add to: from", [&]<class T>(Tag<T>) {
    for_blocks(workers, op.to.size(), [&](std::int64_t begin, std::int64_t end) {
      for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
        store(to + begin + i,
              load(to + begin + i, lanes) + load(op.from.as<T>() + begin + i, lanes), lanes);
      });
    });
  });
}

void run(const ops::Cast& op, Workers& workers) {
  TANDEM_CHECK(op.from.size() == op.to.size(), "cast: sizes");
  with_elements(op.from, op.to, "cast", [&](const auto* from, auto* to) {
    for_blocks(workers, op.to.size(), [&](std::int64_t begin, std::int64_t end) {
      for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
        store(to + begin + i, load(from + begin + i, lanes), lanes);
      });
    });
  });
}

void run(const ops::SplitHalves& op, Workers& workers) {
  const std::int64_t n = op.from.cols;
  expect(op.from, DType::kF32, op.from.rows, n, "split halves: from");
  expect(op.to, op.to.dtype, op.from.rows, 2 * n, "split halves: to");
  with_element(op.to, "split halves: to", [&]<class T>(Tag<T>) {
    for_rows(workers, op.from.rows, 4 * n, [&](std::int64_t row) {
      const float* x = op.from.as<float>() + row * n;
      T* hi = op.to.as<T>() + row * 2 * n;
      for_lanes(n, [&](std::int64_t i, auto lanes) { store(hi + i, load(x + i, lanes), lanes); });
      for_lanes(n, [&](std::int64_t i, auto lanes) {
        store(hi + n + i, load(x + i, lanes) - load(hi + i, lanes), lanes);
      });
    });
  });
}

void run(const ops::Sum& op, Workers& workers) {
  TANDEM_CHECK(op.out.size() == 1, "sum: out");
  float& out = *op.out.as<float>();
  out = static_cast<float>(out + total_of(op.in, workers, [](double x) { return x; }));
}

void run(const ops::SquareSum& op, Workers& workers) {
  TANDEM_CHECK(op.out.size() == 1, "square sum: out");
  *op.out.as<float>() =
      static_cast<float>(total_of(op.in, workers, [](double x) { return x * x; }));
}

}  // namespace tandem::cpu
