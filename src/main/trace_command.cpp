#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "commands.h"
#include "output_file.h"
#include "tandem/base/atomic_file.h"
#include "tandem/base/error.h"
#include "tandem/trace/trace.h"
#include "trace_chart.h"

namespace tandem {
namespace {

struct NodeTimes {
  std::string lane, name;
  int count = 0;
  double total_us = 0;
};

void print_tables(const ChromeTrace& trace, const std::string& path) {
  const TraceWindow window = whole(trace);
  fmt::print("{}: rank {}, {} events in {:.3f} ms\n", path, trace.rank, trace.spans.size(),
             (window.end_us - window.begin_us) / 1e3);
  if (!trace.about.empty()) fmt::print("{}\n", about_of(trace));
  const OverlapStats stats = overlap_stats(trace.spans);
  if (trace.exchanges && stats.ep_us > 0.0)
    fmt::print(
        "expert all-to-all: {:.1f} % hidden under compute; lane ep, also counts_fwd, the exchange "
        "of "
        "token counts\n",
        100.0 * stats.hidden_share());

  fmt::print("\n{:<10} {:>12} {:>12}\n", "lane", "busy ms", "exposed ms");
  for (const LaneTime& lane : lane_times(trace.spans))
    fmt::print("{:<10} {:>12.3f} {:>12}\n", lane.lane, lane.busy_us / 1e3,
               lane.lane == "compute" ? "" : fmt::format("{:.3f}", lane.exposed_us / 1e3));
  fmt::print(
      "busy: time in which the lane had something to do, waiting for other ranks included; "
      "exposed: "
      "the part of it in which compute had nothing. Sums over all traced steps.\n");

  std::map<std::pair<std::string, std::string>, NodeTimes> nodes;
  for (const TraceSpan& span : trace.spans) {
    NodeTimes& node = nodes[{span.lane, span.name}];
    node.lane = span.lane;
    node.name = span.name;
    ++node.count;
    node.total_us += span.end_us - span.begin_us;
  }
  std::vector<NodeTimes> rows;
  for (auto& [key, node] : nodes) rows.push_back(std::move(node));
  std::stable_sort(rows.begin(), rows.end(), [](const NodeTimes& a, const NodeTimes& b) {
    return a.lane != b.lane ? a.lane < b.lane : a.total_us > b.total_us;
  });
  fmt::print("\n{:<10} {:<22} {:>7} {:>10} {:>12}\n", "lane", "node", "count", "mean ms",
             "total ms");
  for (const NodeTimes& node : rows)
    fmt::print("{:<10} {:<22} {:>7} {:>10.4f} {:>12.3f}\n", node.lane, node.name, node.count,
               node.total_us / node.count / 1e3, node.total_us / 1e3);
}

TraceWindow window_of(const ChromeTrace& trace, const TraceArgs& args) {
  if (!args.around.empty())
    return around(trace, args.around,
                  args.width_ms ? std::optional(*args.width_ms * 1e3) : std::nullopt);
  TraceWindow window = whole(trace);
  const double end_ms = window.end_us / 1e3;
  if (args.from_ms) window.begin_us = *args.from_ms * 1e3;
  if (args.to_ms) window.end_us = std::min(window.end_us, *args.to_ms * 1e3);
  if (window.begin_us >= window.end_us) {
    const std::string where =
        !args.to_ms     ? fmt::format("after --from {}", *args.from_ms)
        : !args.from_ms ? fmt::format("before --to {}", *args.to_ms)
                        : fmt::format("between --from {} and --to {}", *args.from_ms, *args.to_ms);
    throw_error(ExitCode::kUsage, "nothing lies {}: the trace has {:.3f} ms", where, end_ms);
  }
  return window;
}

}  // namespace

int run_trace(const TraceArgs& args) {
  require_other_file("--svg", args.svg, args.path);
  const ChromeTrace trace = read_chrome_trace(args.path);
  if (trace.spans.empty())
    throw_error(ExitCode::kBadInput,
                "{}: no step was traced; see logging.trace_begin and trace_steps", args.path);
  const Chart chart = chart_of(trace, window_of(trace, args), args.path);
  print_tables(trace, args.path);
  if (args.svg.empty()) return 0;
  replace_file(args.svg, to_svg(chart));
  fmt::print("\n{}: {:.3f} to {:.3f} ms\n", args.svg, chart.begin_us / 1e3, chart.end_us / 1e3);
  return 0;
}

}  // namespace tandem
