// What one rank writes while it trains, apart from checkpoints: metrics (rank 0) and its trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/trace/metrics.h"
#include "tandem/trace/trace.h"

namespace tandem {

// Errors name the key that asked for the output. Output that this rank alone has to write and
// cannot is lost(): the run goes on to its next stop, writes no more of it, and ends with the
// error.
class RunOutput {
 public:
  // `config` outlives the object.
  RunOutput(const LoggingConfig& config, int rank) : config_(config), rank_(rank) {}

  // Tries whether a trace can be written. Throws Error(kBadInput).
  void try_trace() const;
  // Opens the files of metrics, which makes them, so last of all before the first step. Throws
  // Error(kBadInput), and then leaves none that was not there before.
  void open_metrics();

  // Both keep an Error for lost() instead of throwing it. `about`, `exchanges`: of
  // write_chrome_trace().
  void write_metrics(std::int64_t step, const MetricList& metrics);
  void write_trace(const std::vector<TraceSpan>& spans, const std::string& about, bool exchanges);

  // The first error of a write; empty: none.
  [[nodiscard]] const std::string& lost() const { return lost_; }

 private:
  struct Sink {
    const char* key;
    std::unique_ptr<MetricSink> to;
  };
  template <class Body>
  void write(const char* key, const Body& body);

  const LoggingConfig& config_;
  const int rank_;
  std::vector<Sink> sinks_;
  std::string lost_;
};

}  // namespace tandem
