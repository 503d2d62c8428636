#include "tandem/train/step_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/units.h"

namespace tandem {
namespace {

constexpr std::size_t kScalars = 11;

std::array<double, kScalars> scalars(const RankReport& r) {
  return {r.loss_sum,     r.aux,          r.grad_norm,    r.ep_us,
          r.hidden_us,    r.compute_us,   r.host_wait_us, r.forward_backward_us,
          r.optimizer_us, r.memory_bytes, r.stop};
}

std::string rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string text_line(const StepReport& r, const RunConfig& config) {
  std::string line = fmt::format(
      "step {:>{}}/{} | loss {:.4f} | lr {:.2e} | grad norm {} | {} tok/s | {:.3f} TFLOP/s", r.step,
      std::to_string(r.total_steps).size(), r.total_steps, r.loss, r.lr,
      std::isfinite(r.grad_norm) ? fmt::format("{:.3f}", r.grad_norm) : "overflow",
      rate(r.tokens_per_s), r.tflops);
  if (!std::isnan(r.hidden_share))
    line += fmt::format(" | a2a hidden {:.0f}%, exposed {:.0f} ms, host waits {:.0f} ms",
                        100.0 * r.hidden_share, r.exposed_ms, r.host_wait_ms);
  if (config.model.experts > 0)
    line += fmt::format(" | load {:.2f}x, dead {}", r.load_max_over_mean, r.dead_experts);
  if (r.scales_loss) line += fmt::format(" | loss scale {}, skipped {}", r.loss_scale, r.skipped);
  return line + fmt::format(" | {:.2f} GiB | ETA {}", r.memory_gib, duration(r.eta_s));
}

// The line Megatron-LM prints, field for field, so that scripts that parse it work unchanged.
std::string megatron_line(const StepReport& r, const RunConfig& config) {
  const std::time_t now = std::time(nullptr);
  // Like Megatron, of a skipped step none.
  const std::string norm =
      std::isfinite(r.grad_norm) ? fmt::format(" grad norm: {:.3f} |", r.grad_norm) : "";
  return fmt::format(
      " [{:%Y-%m-%d %H:%M:%S}] iteration {:>8}/{:>8} | consumed samples: {:>12} | elapsed time per "
      "iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): {:.1f} | learning rate: {:.6E} | "
      "global batch size: {:>5} | lm loss: {:.6E} | load_balancing_loss: {:.6E} | loss scale: "
      "{:.1f} |{} number of skipped iterations: {:>3} | number of nan iterations:   0 |",
      fmt::localtime(now), r.step, r.total_steps, r.step * config.train.global_batch,
      r.seconds * 1e3, r.tflops / config.world(), r.lr, config.train.global_batch, r.loss, r.aux,
      r.loss_scale, norm, r.skipped_since_line);
}

std::string json_line(std::int64_t step, const MetricList& metrics) {
  std::string line = fmt::format("{{\"step\": {}", step);
  for (const auto& [name, value] : metrics)
    line += std::isfinite(value) ? fmt::format(", \"{}\": {:.9g}", name, value)
                                 : fmt::format(", \"{}\": null", name);  // norm of a skipped step
  return line + "}";
}

}  // namespace

std::string pack(const RankReport& report) {
  const auto values = scalars(report);
  std::string bytes(sizeof(values) + report.expert_load.size() * sizeof(std::int64_t), '\0');
  std::memcpy(bytes.data(), values.data(), sizeof(values));
  if (!report.expert_load.empty())
    std::memcpy(bytes.data() + sizeof(values), report.expert_load.data(),
                bytes.size() - sizeof(values));
  return bytes;
}

RankReport unpack(const std::string& bytes) {
  std::array<double, kScalars> v{};
  TANDEM_CHECK(bytes.size() >= sizeof(v), "a step report is cut short");
  std::memcpy(v.data(), bytes.data(), sizeof(v));
  RankReport report{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], {}};
  report.expert_load.resize((bytes.size() - sizeof(v)) / sizeof(std::int64_t));
  if (!report.expert_load.empty())
    std::memcpy(report.expert_load.data(), bytes.data() + sizeof(v), bytes.size() - sizeof(v));
  return report;
}

StepReport combine(const std::vector<RankReport>& ranks, const RunConfig& config) {
  StepReport out;
  double ep_us = 0.0, hidden_us = 0.0;
  std::vector<std::int64_t> load;
  for (const RankReport& rank : ranks) {
    out.loss += rank.loss_sum;
    out.aux += rank.aux;
    out.grad_norm = rank.grad_norm;  // the same on every rank
    ep_us += rank.ep_us;
    hidden_us += rank.hidden_us;
    out.exposed_ms = std::max(out.exposed_ms, (rank.ep_us - rank.hidden_us) / 1e3);
    out.host_wait_ms = std::max(out.host_wait_ms, rank.host_wait_us / 1e3);
    out.forward_backward_ms = std::max(out.forward_backward_ms, rank.forward_backward_us / 1e3);
    out.optimizer_ms = std::max(out.optimizer_ms, rank.optimizer_us / 1e3);
    out.memory_gib = std::max(out.memory_gib, rank.memory_bytes / kGib);
    out.stop = out.stop || rank.stop != 0.0;
    load.resize(std::max(load.size(), rank.expert_load.size()));
    for (std::size_t i = 0; i < rank.expert_load.size(); ++i) load[i] += rank.expert_load[i];
  }
  out.loss /= static_cast<double>(config.train.global_batch) * config.train.seq_len;
  if (config.parallel.ep == 1)
    out.hidden_share = std::numeric_limits<double>::quiet_NaN();
  else
    out.hidden_share = ep_us > 0.0 ? hidden_us / ep_us : 1.0;

  const auto experts = static_cast<std::size_t>(config.model.experts);
  for (std::size_t at = 0; experts > 0 && at + experts <= load.size(); at += experts) {
    const auto begin = load.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(experts);
    std::int64_t sum = 0;
    for (auto it = begin; it != end; ++it) sum += *it;
    if (sum == 0) continue;  // a dense layer
    const double mean = static_cast<double>(sum) / static_cast<double>(experts);
    out.load_max_over_mean =
        std::max(out.load_max_over_mean, static_cast<double>(*std::max_element(begin, end)) / mean);
    out.dead_experts += std::count(begin, end, 0);
  }
  return out;
}

std::string progress_line(const StepReport& report, const RunConfig& config) {
  switch (config.logging.format) {
    case LogFormat::kJson:
      return json_line(report.step, metrics_of(report));
    case LogFormat::kMegatron:
      return megatron_line(report, config);
    case LogFormat::kText:
      break;
  }
  return text_line(report, config);
}

std::string evaluation_line(std::int64_t step, double loss, const RunConfig& config) {
  switch (config.logging.format) {
    case LogFormat::kJson:
      return json_line(step, evaluation_metrics(loss));
    case LogFormat::kMegatron:  // as Megatron-LM prints it, with its limit of the exponent
      return fmt::format(
          " validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ", step,
          loss, std::exp(std::min(20.0, loss)));
    case LogFormat::kText:
      break;
  }
  return fmt::format("held-out step {} | loss {:.4f} | perplexity {:.3f}", step, loss,
                     std::exp(loss));
}

MetricList evaluation_metrics(double loss) {
  return {{"lm loss validation", loss}};
}

MetricList metrics_of(const StepReport& r) {
  MetricList metrics = {{"lm loss", r.loss},
                        {"load_balancing_loss", r.aux},
                        {"learning-rate", r.lr},
                        {"grad-norm", r.grad_norm},
                        {"iteration-time", r.seconds},
                        {"tokens-per-second", r.tokens_per_s},
                        {"throughput", r.tflops},
                        {"host-wait-ms", r.host_wait_ms},
                        {"expert-load-max-over-mean", r.load_max_over_mean},
                        {"dead-experts", static_cast<double>(r.dead_experts)},
                        {"memory-gib", r.memory_gib}};
  if (!std::isnan(r.hidden_share)) {
    metrics.emplace_back("alltoall-hidden-share", r.hidden_share);
    metrics.emplace_back("alltoall-exposed-ms", r.exposed_ms);
  }
  if (r.scales_loss) {
    metrics.emplace_back("loss-scale", r.loss_scale);
    metrics.emplace_back("skipped-steps", static_cast<double>(r.skipped));
  }
  return metrics;
}

std::string duration(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

}  // namespace tandem
