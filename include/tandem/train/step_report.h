// What the ranks tell each other after a step, and the lines people and parsers read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/trace/metrics.h"

namespace tandem {

// One rank's part. Exchanged as bytes.
struct RankReport {
  double loss_sum = 0.0;  // token losses (ranks with the head)
  double aux = 0.0;       // auxiliary losses of this rank's layers
  double grad_norm = 0.0;
  double ep_us = 0.0, hidden_us = 0.0, compute_us = 0.0, host_wait_us = 0.0;
  double forward_backward_us = 0.0, optimizer_us = 0.0;  // trace/trace.h: StepSplit
  double memory_bytes = 0.0;
  double stop = 0.0;                      // 1: a signal or lost output asks to stop
  std::vector<std::int64_t> expert_load;  // [layers * experts]
};

std::string pack(const RankReport& report);
RankReport unpack(const std::string& bytes);

// The whole job's step.
struct StepReport {
  std::int64_t step = 0, total_steps = 0;
  double loss = 0.0, aux = 0.0, grad_norm = 0.0, lr = 0.0;
  double seconds = 0.0, tokens_per_s = 0.0, tflops = 0.0;
  // Of expert all-to-all time, over all ranks; NaN with ep = 1: alone, a rank sends only to itself.
  double hidden_share = 0.0;
  double exposed_ms = 0.0, host_wait_ms = 0.0;  // largest over ranks
  double forward_backward_ms = 0.0, optimizer_ms = 0.0;  // largest over ranks
  double load_max_over_mean = 0.0;                       // worst layer
  std::int64_t dead_experts = 0;                         // experts without a token, all layers
  double memory_gib = 0.0;                               // largest over ranks
  double eta_s = 0.0;
  bool scales_loss = false;             // fp16
  double loss_scale = 1.0;              // of the next step
  std::int64_t skipped = 0;             // steps of the whole run that changed nothing
  std::int64_t skipped_since_line = 0;  // since the last progress line
  bool stop = false;
};

// Combines the ranks' parts; the caller fills step, lr, times, loss scale.
StepReport combine(const std::vector<RankReport>& ranks, const RunConfig& config);

std::string progress_line(const StepReport& report, const RunConfig& config);
MetricList metrics_of(const StepReport& report);

// Of an evaluation after `step`, whose mean loss is `loss`.
std::string evaluation_line(std::int64_t step, double loss, const RunConfig& config);
MetricList evaluation_metrics(double loss);

// "1h02m", "3m12s", "8s".
std::string duration(double seconds);

}  // namespace tandem
