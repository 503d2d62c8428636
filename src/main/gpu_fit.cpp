#include "gpu_fit.h"

#include <fmt/core.h>

#include <string>

#include "tandem/base/units.h"

namespace tandem {
namespace {

struct Gpu {
  const char* key;
  const char* said;
  double gib;  // that a process can have
};
constexpr Gpu kH100 = {"h100_80gb", "the 80 GB of an H100", 79.0};
constexpr Gpu kH200 = {"h200_141gb", "the 141 GB of an H200", 139.0};
// Beside the plan: scratch, workspaces of libraries, communicators, the CUDA context. Slices that
// were planned at 98 to 110 GiB took 103 to 113 on H200s.
constexpr double kLeastBesides = 3.0, kMostBesides = 5.0;

struct Fit {
  const char* word;
  const char* before_gpu;  // between the word and the GPU
};
constexpr Fit kFits = {"fits", " "}, kTight = {"tight", " on "}, kTooMuch = {"too much", " for "};

Fit fit(double need_gib, const Gpu& gpu) {
  if (need_gib + kMostBesides <= gpu.gib) return kFits;
  return need_gib <= gpu.gib ? kTight : kTooMuch;
}

std::string fit_text(double need_gib, const Gpu& gpu) {
  const auto [word, before_gpu] = fit(need_gib, gpu);
  return fmt::format("{}{}{}", word, before_gpu, gpu.said);
}

}  // namespace

void print_fit(std::int64_t largest_bytes) {
  const double need = static_cast<double>(largest_bytes) / kGib;
  std::string text = fit_text(need, kH100);
  if (need + kMostBesides > kH100.gib) text += ", " + fit_text(need, kH200);
  if (need > kH200.gib) text += ": more pp, ep or dp, or a smaller micro-batch";
  fmt::print(
      "largest rank: {:.1f} GiB, and {:g} to {:g} GiB more for scratch, libraries and the CUDA "
      "context; {}\n",
      need, kLeastBesides, kMostBesides, text);
}

void write_fit(JsonWriter& json, std::int64_t largest_bytes) {
  const double need = static_cast<double>(largest_bytes) / kGib;
  json.begin_object().key("bytes").value(largest_bytes);
  json.key("least_besides_bytes").value(kLeastBesides * kGib);
  json.key("most_besides_bytes").value(kMostBesides * kGib);
  for (const Gpu& gpu : {kH100, kH200}) json.key(gpu.key).value(fit(need, gpu).word);
  json.end_object();
}

}  // namespace tandem
