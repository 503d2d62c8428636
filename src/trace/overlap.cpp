#include <algorithm>
#include <string_view>
#include <utility>

#include "tandem/trace/trace.h"

namespace tandem {
namespace {

using Interval = std::pair<double, double>;  // begin, end
using Intervals = std::vector<Interval>;

// The spans of one lane as disjoint intervals in order of time.
Intervals united(const std::vector<TraceSpan>& spans, std::string_view lane) {
  Intervals all;
  for (const TraceSpan& span : spans) {
    if (span.lane == lane && span.end_us > span.begin_us) {
      all.emplace_back(span.begin_us, span.end_us);
    }
  }
  std::sort(all.begin(), all.end());
  Intervals result;
  for (const Interval& next : all) {
    if (!result.empty() && next.first <= result.back().second) {
      result.back().second = std::max(result.back().second, next.second);
    } else {
      result.push_back(next);
    }
  }
  return result;
}

double length(const Intervals& intervals) {
  double total = 0;
  for (const auto& [begin, end] : intervals) total += end - begin;
  return total;
}

double common_length(const Intervals& a, const Intervals& b) {
  double total = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    total += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    a[i].second < b[j].second ? ++i : ++j;
  }
  return total;
}

}  // namespace

OverlapStats overlap_stats(const std::vector<TraceSpan>& spans) {
  const Intervals ep = united(spans, "ep");
  const Intervals compute = united(spans, "compute");
  return {.ep_us = length(ep),
          .hidden_us = common_length(ep, compute),
          .compute_us = length(compute),
          .host_wait_us = length(united(spans, "host"))};
}

std::vector<LaneTime> lane_times(const std::vector<TraceSpan>& spans) {
  const Intervals compute = united(spans, "compute");
  std::vector<LaneTime> times;
  for (const TraceSpan& span : spans) {
    const bool known = std::any_of(times.begin(), times.end(),
                                   [&](const LaneTime& t) { return t.lane == span.lane; });
    if (known) continue;
    const Intervals mine = united(spans, span.lane);
    const double busy = length(mine);
    times.push_back({span.lane, busy, busy - common_length(mine, compute)});
  }
  return times;
}

StepSplit split_step(const std::vector<TraceSpan>& spans) {
  double begin = 0, work_end = 0, end = 0;
  bool first = true;
  for (const TraceSpan& span : spans) {
    if (span.lane == "host") continue;
    begin = first ? span.begin_us : std::min(begin, span.begin_us);
    end = first ? span.end_us : std::max(end, span.end_us);
    if (span.lane != "dp") work_end = std::max(work_end, span.end_us);
    first = false;
  }
  if (first) return {};
  work_end = std::max(work_end, begin);
  return {work_end - begin, end - work_end};
}

}  // namespace tandem
