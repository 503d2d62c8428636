#include "trace_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/units.h"

namespace tandem {
namespace {

struct Kind {
  Op op = Op::kRun;
  NodeKind node = NodeKind::kEmbedding;
  Phase phase = Phase::kFwd;
};

// "dispatch_fwd", "SEND": the names that spans get.
std::optional<Kind> kind_of(std::string_view name) {
  for (const Op op : {Op::kSend, Op::kRecv, Op::kHostWait, Op::kGradSync, Op::kOptStep})
    if (name == name_of(op)) return Kind{.op = op};
  for (int node = 0; node <= static_cast<int>(NodeKind::kHead); ++node)
    for (const Phase phase : {Phase::kFwd, Phase::kBwdInput, Phase::kBwdWeight})
      if (name == fmt::format("{}_{}", name_of(static_cast<NodeKind>(node)), name_of(phase)))
        return Kind{Op::kRun, static_cast<NodeKind>(node), phase};
  return std::nullopt;
}

double origin_of(const ChromeTrace& trace) {
  double first = trace.spans.empty() ? 0.0 : trace.spans.front().begin_us;
  for (const TraceSpan& span : trace.spans) first = std::min(first, span.begin_us);
  return first;
}

std::string full_label(const TraceSpan& span) {
  std::string label = span.name;
  if (span.layer >= 0) label += fmt::format(" L{}", span.layer);
  if (span.microbatch >= 0) label += fmt::format(" mb{}", span.microbatch);
  return label;
}

// The letters of the charts in the terminal.
std::string letter(const Kind& kind, Dir dir) {
  if (kind.op != Op::kRun) return "";
  constexpr std::string_view kLetters = "XANDECGMH";  // by NodeKind
  const char upper = kLetters[static_cast<std::size_t>(kind.node)];
  if (dir == Dir::kFwd) return {upper};
  const std::string lower(1, static_cast<char>(upper - 'A' + 'a'));
  return kind.phase == Phase::kBwdWeight ? lower + "'" : lower;
}

std::vector<std::string> labels_of(const TraceSpan& span, const Kind& kind, Dir dir) {
  std::vector<std::string> labels = {full_label(span), span.name};
  if (kind.op == Op::kRun) {
    labels.emplace_back(name_of(kind.node));
    const std::string short_name = letter(kind, dir);
    if (span.microbatch >= 0) labels.push_back(short_name + std::to_string(span.microbatch));
    labels.push_back(short_name);
  }
  return labels;
}

ChartBox box_of(const TraceSpan& span, double origin_us, const std::string& path) {
  const std::optional<Kind> kind = kind_of(span.name);
  if (!kind)
    throw_error(ExitCode::kBadInput,
                "{}: \"{}\" is no instruction of Tandem; give a trace that logging.trace wrote",
                path, span.name);
  const Dir dir = span.category == name_of(Dir::kBwd) ? Dir::kBwd : Dir::kFwd;
  std::string tooltip = fmt::format("{}, {}", full_label(span), span.lane);
  if (span.chunk >= 0) tooltip += fmt::format(", chunk {}", span.chunk);
  tooltip += fmt::format(", {:.1f} \u00b5s from {:.3f} ms", span.end_us - span.begin_us,
                         (span.begin_us - origin_us) / 1e3);
  return {.begin_us = span.begin_us - origin_us,
          .end_us = span.end_us - origin_us,
          .tone = tone_of(kind->op, kind->node, kind->phase),
          .dir = dir,
          .labels = labels_of(span, *kind, dir),
          .tooltip = std::move(tooltip)};
}

// What of the spans lies in the window.
std::vector<TraceSpan> clipped(const ChromeTrace& trace, const TraceWindow& window) {
  const double origin = origin_of(trace);
  std::vector<TraceSpan> inside;
  for (TraceSpan span : trace.spans) {
    span.begin_us = std::max(span.begin_us - origin, window.begin_us);
    span.end_us = std::min(span.end_us - origin, window.end_us);
    if (span.end_us > span.begin_us) inside.push_back(std::move(span));
  }
  return inside;
}

std::string summary_of(const ChromeTrace& trace, const TraceWindow& window) {
  const double length = window.end_us - window.begin_us;
  const OverlapStats stats = overlap_stats(clipped(trace, window));
  std::string text = time_text(length, length);
  if (trace.exchanges && stats.ep_us > 0.0)
    text += fmt::format(", expert all-to-all {:.1f} % hidden", 100.0 * stats.hidden_share());
  return text;
}

bool earlier(const TraceSpan* a, const TraceSpan* b) {
  return a->begin_us < b->begin_us;
}

// The span with some compute nodes on either side, or width_us if given. `compute` is sorted.
TraceWindow window_around(const ChromeTrace& trace, const std::vector<const TraceSpan*>& compute,
                          const TraceSpan& span, std::optional<double> width_us) {
  const double origin = origin_of(trace);
  TraceWindow window{span.begin_us - origin, span.end_us - origin};
  if (width_us) {
    const double spare = (*width_us - (window.end_us - window.begin_us)) / 2;
    return {std::max(0.0, window.begin_us - spare), window.end_us + spare};
  }
  constexpr std::size_t kBefore = 6, kAfter = 7;
  const auto next = static_cast<std::size_t>(
      std::lower_bound(compute.begin(), compute.end(), &span, earlier) - compute.begin());
  if (!compute.empty()) {
    const std::size_t first = next > kBefore ? next - kBefore : 0;
    const std::size_t last = std::min(next + kAfter, compute.size() - 1);
    window.begin_us = std::min(window.begin_us, compute[first]->begin_us - origin);
    window.end_us = std::max(window.end_us, compute[last]->end_us - origin);
  }
  return window;
}

// " L0..3 L8": what of the numbers is not negative, as runs.
std::string runs_of(const char* letters, const std::set<int>& numbers) {
  std::string text;
  for (auto first = numbers.lower_bound(0); first != numbers.end();) {
    auto next = std::next(first);
    int last = *first;
    while (next != numbers.end() && *next == last + 1) last = *next++;
    text += fmt::format(" {}{}", letters, *first);
    if (last > *first) text += fmt::format("..{}", last);
    first = next;
  }
  return text;
}

// The places of the node that a label without match begins with, or the names of all.
std::string what_there_is(const ChromeTrace& trace, const std::string& label) {
  const std::string node = label.substr(0, label.find(' '));
  std::set<std::string> names;
  std::set<int> layers, microbatches;
  for (const TraceSpan& span : trace.spans) {
    names.insert(span.name);
    if (span.name != node) continue;
    layers.insert(span.layer);
    microbatches.insert(span.microbatch);
  }
  if (names.contains(node)) return node + runs_of("L", layers) + runs_of("mb", microbatches);
  constexpr std::size_t kShown = 60;  // Tandem has fewer
  const std::size_t more = names.size() - std::min(kShown, names.size());
  const auto end = std::prev(names.end(), static_cast<std::ptrdiff_t>(more));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

std::string about_of(const ChromeTrace& trace) {
  constexpr std::size_t kMost = 400;  // characters, a few times what Tandem writes
  return excerpt(trace.about, kMost);
}

TraceWindow whole(const ChromeTrace& trace) {
  const double origin = origin_of(trace);
  TraceWindow window;
  for (const TraceSpan& span : trace.spans)
    window.end_us = std::max(window.end_us, span.end_us - origin);
  return window;
}

TraceWindow around(const ChromeTrace& trace, const std::string& node,
                   std::optional<double> width_us) {
  std::vector<const TraceSpan*> compute, matches;
  for (const TraceSpan& span : trace.spans) {
    if (span.lane == name_of(Lane::kCompute)) compute.push_back(&span);
    if (span.name == node || full_label(span) == node) matches.push_back(&span);
  }
  if (matches.empty()) {
    throw_error(ExitCode::kUsage, "--around \"{}\": the trace has no such node; it has {}",
                excerpt(node), what_there_is(trace, node));
  }
  std::sort(compute.begin(), compute.end(), earlier);
  std::sort(matches.begin(), matches.end(), earlier);
  TraceWindow best;
  double best_hidden = -1.0;
  for (const TraceSpan* match : matches) {
    const TraceWindow window = window_around(trace, compute, *match, width_us);
    const double hidden = overlap_stats(clipped(trace, window)).hidden_share();
    if (hidden <= best_hidden) continue;
    best = window;
    best_hidden = hidden;
  }
  return best;
}

Chart chart_of(const ChromeTrace& trace, const TraceWindow& window, const std::string& path) {
  const double origin = origin_of(trace);
  Chart chart;
  chart.title = fmt::format("Measured: rank {}{}{}", trace.rank, trace.about.empty() ? "" : ", ",
                            about_of(trace));
  chart.summary = summary_of(trace, window);
  chart.hint =
      "L layer, mb micro-batch; where short of room A attention, D dispatch, E experts, C combine, "
      "G aggregate, M mlp, H head, lower case backward, ' weight gradient";
  chart.begin_us = window.begin_us;
  chart.end_us = window.end_us;
  chart.main_row = 34;
  ChartBand band{fmt::format("rank {}", trace.rank), {}};
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const auto which = static_cast<Lane>(lane);
    ChartRow row{std::string(name_of(which)), which == Lane::kCompute || which == Lane::kEp, {}};
    for (const TraceSpan& span : trace.spans)
      if (span.lane == row.label) row.boxes.push_back(box_of(span, origin, path));
    std::sort(row.boxes.begin(), row.boxes.end(),
              [](const ChartBox& a, const ChartBox& b) { return a.begin_us < b.begin_us; });
    band.rows.push_back(std::move(row));
  }
  chart.bands.push_back(std::move(band));
  return chart;
}

}  // namespace tandem
