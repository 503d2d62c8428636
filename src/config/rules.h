// The cross-field rules, by theme. Each function appends its violations; every single value lies in
// its range already, and dp and microbatch_group are filled in.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "way_out.h"

namespace tandem::config {

class Violations {
 public:
  // "key = value: rule; way out"
  template <class T>
  void add(const char* key, const T& value, const std::string& rule, const std::string& way_out) {
    list_.push_back(fmt::format("{} = {}: {}; {}", key, value, rule, way_out));
  }
  [[nodiscard]] bool empty() const { return list_.empty(); }
  [[nodiscard]] std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void check_model(const RunConfig& config, Violations& out);
void check_sizes(const RunConfig& config, Violations& out);  // what must fit 32 and 64 bits
// Layers and experts over ranks. `way`: what mends the layout as a whole.
void check_layout(const RunConfig& config, const WayOut& way, Violations& out);
// Micro-batches and interleaving. dp_origin: said behind parallel.dp where nobody wrote it.
void check_batch(const RunConfig& config, const std::string& dp_origin, const WayOut& way,
                 Violations& out);
void check_training(const RunConfig& config, Violations& out);  // steps, rates, storage
void check_files(const RunConfig& config, Violations& out);     // data, checkpoints, logs

}  // namespace tandem::config
