// Prints the time and the rate of the kernels that decide a training step:
//   bench_ops [threads] [only ops whose name contains this]
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include "tandem/ops/cpu.h"

namespace {

using namespace tandem;

// Buffers that live as long as the program, filled with small varied values.
View filled(DType dtype, std::int64_t rows, std::int64_t cols) {
  View view{nullptr, dtype, rows, cols};
  view.data = std::malloc(view.bytes() + 64);
  for (std::int64_t i = 0; i < view.size(); ++i) {
    const float x = static_cast<float>((i * 2654435761U) % 1000) / 500.0F - 1.0F;
    if (dtype == DType::kF32) view.as<float>()[i] = x;
    if (dtype == DType::kBF16)
      view.as<std::uint16_t>()[i] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    if (dtype == DType::kI32) view.as<std::int32_t>()[i] = 0;
  }
  return view;
}

// In-place ops run again and again on the same data: factors of one keep it within range.
View ones(DType dtype, std::int64_t rows, std::int64_t cols) {
  View view = filled(dtype, rows, cols);
  for (std::int64_t i = 0; i < view.size(); ++i) {
    if (dtype == DType::kF32) view.as<float>()[i] = 1;
    if (dtype == DType::kBF16) view.as<std::uint16_t>()[i] = 0x3f80;
  }
  return view;
}

// Processor seconds of the whole process: wall time says little on a machine that others use too.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best of several rounds, in wall and in processor time; rates are by wall time for several
// threads and by processor time for one.
struct Bench {
  Workers workers;
  std::string only;
};

template <class Op>
void time_op(const char* name, Bench& bench, double flops, double bytes, const Op& op) {
  if (std::string_view(name).find(bench.only) == std::string_view::npos) return;
  Workers& workers = bench.workers;
  using Clock = std::chrono::steady_clock;
  double best_wall = 1e9, best_cpu = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto start = Clock::now();
    const double cpu_start = cpu_seconds();
    int calls = 0;
    double wall = 0;
    for (; wall < 0.004; wall = std::chrono::duration<double>(Clock::now() - start).count()) {
      cpu::run(op, workers);
      ++calls;
    }
    best_wall = std::min(best_wall, wall / calls);
    best_cpu = std::min(best_cpu, (cpu_seconds() - cpu_start) / calls);
  }
  const double best = workers.threads() == 1 ? best_cpu : best_wall;
  std::printf("%-34s wall %8.3f ms, cpu %8.3f ms %8.1f GFLOP/s %7.1f GB/s\n", name, best_wall * 1e3,
              best_cpu * 1e3, flops / best * 1e-9, bytes / best * 1e-9);
}

void matrices(Bench& bench, DType d) {
  const auto gemm = [&](const char* name, std::int64_t m, std::int64_t n, std::int64_t k,
                        bool trans_a, bool trans_b, bool accumulate) {
    const View a = trans_a ? filled(d, k, m) : filled(d, m, k);
    const View b = trans_b ? filled(d, n, k) : filled(d, k, n);
    const View c = filled(accumulate ? DType::kF32 : d, m, n);
    time_op(name, bench, 2.0 * static_cast<double>(m * n * k), 0,
            ops::Gemm{a, b, c, trans_a, trans_b, accumulate});
  };
  gemm("gemm 1024x512x512 nt", 1024, 512, 512, false, true, false);
  gemm("gemm 1024x384x128 nt", 1024, 384, 128, false, true, false);
  gemm("gemm 1024x128x384 nn", 1024, 128, 384, false, false, false);
  gemm("gemm 384x128x1024 tn +=", 384, 128, 1024, true, false, true);
  gemm("gemm 1024x8x128 nt (router)", 1024, 8, 128, false, true, false);
  gemm("gemm 8x128x1024 tn += (router)", 8, 128, 1024, true, false, true);
  gemm("gemm 1024x256x128 nt (head)", 1024, 256, 128, false, true, false);
  const View offsets = filled(DType::kI32, 9, 1);
  for (int e = 0; e <= 8; ++e) offsets.as<std::int32_t>()[e] = 256 * e;
  const std::vector<std::int64_t> rows(8, 256);
  const View x = filled(d, 2048, 256), y = filled(d, 2048, 256), w = filled(d, 8 * 256, 256);
  const View d_w = filled(DType::kF32, 8 * 256, 256);
  const double flops = 2.0 * 2048 * 256 * 256;
  time_op("grouped gemm 2048 8x256x256 nt", bench, flops, 0,
          ops::GroupedGemm{x, w, y, offsets, rows, true});
  time_op("grouped gemm 2048 8x256x256 nn", bench, flops, 0,
          ops::GroupedGemm{x, w, y, offsets, rows, false});
  time_op("grouped weight gemm", bench, flops, 0, ops::GroupedGemmWeight{y, x, d_w, offsets, rows});
}

void attention(Bench& bench, DType d, std::int64_t heads, std::int64_t kv, std::int64_t dim,
               std::int64_t seq) {
  const ops::HeadShape s{heads, kv, dim, seq};
  const std::int64_t rows = 1024;
  const View qkv = filled(d, rows, (heads + 2 * kv) * dim), out = filled(d, rows, heads * dim);
  const View d_out = filled(d, rows, heads * dim), d_qkv = filled(d, rows, (heads + 2 * kv) * dim);
  const View lse = filled(DType::kF32, rows, heads), raw = filled(d, rows, (heads + kv) * dim);
  const View w = ones(d, dim, 1), d_w = filled(DType::kF32, dim, 1);
  const View rstd = ones(DType::kF32, rows, heads + kv);
  const double flops = 2.0 * static_cast<double>(rows * seq * dim * heads);  // causal half of two
  std::printf("attention: %d heads, %d kv heads, dim %d, seq %d\n", int(heads), int(kv), int(dim),
              int(seq));
  time_op("  forward", bench, flops, 0, ops::AttentionFwd{qkv, out, lse, s});
  time_op("  backward", bench, 2.5 * flops, 0, ops::AttentionBwd{qkv, out, lse, d_out, d_qkv, s});
  time_op("  rope", bench, 0, 2.0 * static_cast<double>(raw.bytes()),
          ops::Rope{qkv, s, 1e4, false});
  time_op("  qk norm", bench, 0, 3.0 * static_cast<double>(raw.bytes()),
          ops::QkNormFwd{qkv, raw, w, w, rstd, s, false, 1e-6F});
  time_op("  qk norm backward", bench, 0, 3.0 * static_cast<double>(raw.bytes()),
          ops::QkNormBwd{d_qkv, raw, w, w, rstd, d_w, d_w, s, false});
}

void rows(Bench& bench, DType d) {
  const std::int64_t t = 2048, n = 256;
  const View x = filled(d, t, n), y = filled(d, t, n), w = filled(d, n, 1),
             wide = filled(d, t, 2 * n);
  const View d_wide = filled(d, t, 2 * n), rstd = filled(DType::kF32, t, 1),
             d_w = filled(DType::kF32, n, 1);
  const View z = filled(d, t, n), d_weights = filled(DType::kF32, t, 1);
  const double bytes = static_cast<double>(x.bytes());
  time_op("rms norm 2048x256", bench, 0, 2 * bytes, ops::RmsNormFwd{x, w, y, rstd, 1e-6F});
  time_op("rms norm backward", bench, 0, 3 * bytes, ops::RmsNormBwd{y, x, w, rstd, View{}, z, d_w});
  time_op("swiglu 2048x256", bench, 0, 3 * bytes, ops::SwiGluFwd{wide, rstd, y});
  time_op("swiglu backward", bench, 0, 6 * bytes,
          ops::SwiGluBwd{y, wide, rstd, d_wide, z, d_weights});
  time_op("add", bench, 0, 3 * bytes, ops::Add{x, y, z});
  const View logits = filled(DType::kF32, t, n), labels = filled(DType::kI32, t, 1);
  time_op("cross entropy 2048x256", bench, 0, 2.0 * static_cast<double>(logits.bytes()),
          ops::CrossEntropy{logits, labels, rstd, logits, 1e-3F});
  const View scores = filled(DType::kF32, t, 8), probs = filled(DType::kF32, t, 8);
  const View chosen = filled(DType::kI32, t, 2), weights = filled(DType::kF32, t, 2);
  const View place = filled(DType::kI32, t, 2), counts = filled(DType::kI32, 8, 1),
             load = filled(DType::kF32, 8, 1);
  const View spread = filled(d, 2 * t, n);
  time_op("router 2048x8 top 2", bench, 0, 0,
          ops::RouterFwd{scores, probs, chosen, weights, rstd, true});
  time_op("router backward", bench, 0, 0,
          ops::RouterBwd{weights, probs, chosen, weights, rstd, load, scores, 1, 1, true});
  time_op("permute plan", bench, 0, 0, ops::PermutePlan{chosen, counts, place, load});
  time_op("permute rows", bench, 0, 3 * bytes, ops::PermuteRows{x, place, spread});
  time_op("unpermute sum", bench, 0, 4 * bytes, ops::UnpermuteSum{spread, place, x, y});
  const View d_table = filled(DType::kF32, 256, n);
  time_op("embedding backward", bench, 0, 2 * bytes, ops::EmbeddingBwd{labels, x, d_table});
  const std::int64_t params = 1 << 20;
  const auto flat = [&] { return filled(DType::kF32, params, 1); };
  const View square = filled(DType::kF32, 1, 1), scale = filled(DType::kF32, 1, 1), v = flat();
  for (std::int64_t i = 0; i < params; ++i) v.as<float>()[i] = 1;
  time_op("square sum 1M", bench, 0, 4.0 * params, ops::SquareSum{v, square});
  time_op("adamw 1M", bench, 0, 32.0 * params,
          ops::AdamW{flat(), flat(), v, flat(), filled(d, params, 1), scale, 1e-3F, 0.9F, 0.95F,
                     1e-8F, 0.1F, 10});
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench{Workers(argc > 1 ? std::atoi(argv[1]) : 2), argc > 2 ? argv[2] : ""};
  for (const DType d : {DType::kF32, DType::kBF16}) {
    std::printf("== %s, %d threads\n", std::string(name_of(d)).c_str(), bench.workers.threads());
    matrices(bench, d);
    attention(bench, d, 4, 4, 32, 256);
    attention(bench, d, 4, 2, 32, 256);
    attention(bench, d, 4, 2, 64, 128);
    rows(bench, d);
  }
}
