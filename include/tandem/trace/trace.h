// Spans of instructions per lane, the Chrome/Perfetto trace, and what one step's spans say about
// overlap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/device/device.h"

namespace tandem {

struct TraceSpan {
  std::string lane;      // row
  std::string name;      // "dispatch_fwd"
  std::string category;  // "F" or "B" or "comm"
  double begin_us = 0, end_us = 0;
  int chunk = -1, microbatch = -1, layer = -1;
};

struct OverlapStats {
  double ep_us = 0;       // union of expert all-to-all spans
  double hidden_us = 0;   // part of it covered by compute spans
  double compute_us = 0;  // union of compute spans
  double host_wait_us = 0;
  [[nodiscard]] double hidden_share() const { return ep_us > 0 ? hidden_us / ep_us : 1.0; }
};

// From interval unions, not sums. Reads the lanes "ep", "compute" and "host"; the others do not
// count.
OverlapStats overlap_stats(const std::vector<TraceSpan>& spans);

// A step cut where its last forward or backward work of this rank ends.
struct StepSplit {
  double forward_backward_us = 0;  // from the first span to there
  double optimizer_us = 0;         // from there to the end of lane "dp": what lies under nothing
};

// "host" does not count.
StepSplit split_step(const std::vector<TraceSpan>& spans);

struct LaneTime {
  std::string lane;
  double busy_us = 0;     // union of its spans
  double exposed_us = 0;  // part of it not covered by compute spans; of compute itself 0
};

// Of every lane that has spans, in the order in which they appear.
std::vector<LaneTime> lane_times(const std::vector<TraceSpan>& spans);

// One file per rank, JSON: pid = rank, one tid per lane, times in microseconds; `about` says what
// was measured; `exchanges`: rows went between ranks, or waited as if they did, so that it matters
// what share of that was hidden. Makes the folder, replaces a file of that name and throws by the
// rules of base/atomic_file.h.
void write_chrome_trace(const std::string& path, int rank, const std::vector<TraceSpan>& spans,
                        const std::string& about = "", bool exchanges = true);

// Where a rank's trace of a run goes: PREFIX-rank0.json.
std::string trace_file(const std::string& prefix, int rank);

// Begins such a file and removes it again, to learn early whether it can be written. Throws like
// write_chrome_trace.
void try_chrome_trace(const std::string& path);

struct ChromeTrace {
  int rank = 0;
  std::string about;      // "" in traces that do not say
  bool exchanges = true;  // the same: true
  std::vector<TraceSpan> spans;
};

// What write_chrome_trace wrote. Throws Error(kBadInput) naming the path and what is wrong.
ChromeTrace read_chrome_trace(const std::string& path);

}  // namespace tandem
