// A measured trace as a chart.
#pragma once

#include <optional>
#include <string>

#include "tandem/sim/chart.h"
#include "tandem/trace/trace.h"

namespace tandem {

// What the trace says about its run, fit to be printed.
std::string about_of(const ChromeTrace& trace);

// Times in microseconds since the first span of the trace.
struct TraceWindow {
  double begin_us = 0, end_us = 0;
};

TraceWindow whole(const ChromeTrace& trace);
// Around one of the spans that `node` names, as "dispatch_fwd" or "dispatch_fwd L1 mb2": that with the
// largest share of expert all-to-all time hidden about it. Wide enough for some compute nodes on either side, or width_us if given.
// Throws Error(kUsage) naming what there is when nothing fits.
TraceWindow around(const ChromeTrace& trace, const std::string& node,
                   std::optional<double> width_us);

// Throws Error(kBadInput) where a span is no instruction of Tandem.
Chart chart_of(const ChromeTrace& trace, const TraceWindow& window, const std::string& path);

}  // namespace tandem
