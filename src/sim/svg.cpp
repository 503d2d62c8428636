#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "tandem/sim/simulate.h"

namespace tandem {
namespace {

// Geometry in picture units; the viewBox scales them to any size.
constexpr double kWidth = 1600, kLeft = 164, kRight = 24, kTop = 92, kBottom = 46;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kMainRow = 24, kThinRow = 13, kRowGap = 3, kBandPad = 8, kBandGap = 12;
constexpr double kLetter = 6.6;  // width of a digit in a block
constexpr double kSliver = 0.8;  // narrower neighbours of one look are drawn as one
constexpr double kMinGap = 0.15;

// What a block looks like: its kind is a shade of its direction's hue.
enum class Tone {
  kAttention,
  kExperts,
  kMlp,
  kEnds,
  kAggregate,
  kWeight,
  kAllToAll,
  kCounts,
  kTransfer,
  kGradients,
  kHostWait
};
constexpr int kNumTones = static_cast<int>(Tone::kHostWait) + 1;

struct Shade {
  std::string_view label;
  std::array<std::string_view, 2> fill;  // forward, backward
  bool dark;                             // needs white text
};
constexpr std::array<Shade, kNumTones> kShades = {{
    {"attention", {"#3f7fd6", "#e2762f"}, true},
    {"experts", {"#1f56a8", "#b94e0d"}, true},
    {"mlp", {"#2b69bf", "#cd601c"}, true},
    {"embedding, head", {"#123a78", "#8a3806"}, true},
    {"aggregate", {"#86b1ea", "#f2a878"}, false},
    {"weight gradient", {"#86b1ea", "#f0b429"}, false},
    {"dispatch, combine", {"#7fc4d6", "#e59a9a"}, false},
    {"counts", {"#b9e0ea", "#f3cdcd"}, false},
    {"send, receive", {"#5b84bd", "#cf8a4e"}, false},
    {"gradient sync, optimizer", {"#8d7fb8", "#8d7fb8"}, true},
    {"host waits for counts", {"#d3d7dd", "#d3d7dd"}, false},
}};

Tone tone_of(const Instr& instr) {
  switch (instr.op) {
    case Op::kSend:
    case Op::kRecv:
      return Tone::kTransfer;
    case Op::kGradSync:
    case Op::kOptStep:
      return Tone::kGradients;
    case Op::kHostWait:
      return Tone::kHostWait;
    default:
      break;
  }
  if (instr.phase == Phase::kBwdWeight) return Tone::kWeight;
  switch (instr.node) {
    case NodeKind::kAttention:
      return Tone::kAttention;
    case NodeKind::kExperts:
      return Tone::kExperts;
    case NodeKind::kMlp:
      return Tone::kMlp;
    case NodeKind::kAggregate:
      return Tone::kAggregate;
    case NodeKind::kCounts:
      return Tone::kCounts;
    case NodeKind::kDispatch:
    case NodeKind::kCombine:
      return Tone::kAllToAll;
    case NodeKind::kEmbedding:
    case NodeKind::kHead:
      break;
  }
  return Tone::kEnds;
}

std::string class_of(Tone tone, Dir dir) {
  return fmt::format("{}{}", dir == Dir::kFwd ? 'f' : 'b', static_cast<int>(tone));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string time_text(double us, double scale_us) {
  if (scale_us >= 1e6) return fmt::format("{:.4g} s", us / 1e6);
  if (scale_us >= 1e3) return fmt::format("{:.4g} ms", us / 1e3);
  return fmt::format("{:.4g} \u00b5s", us);
}

std::string tooltip(const Program& program, const Instr& instr, const Span& span) {
  std::string what{name_of(instr.op)};
  if (instr.op == Op::kRun) what = fmt::format("{} {}", name_of(instr.node), name_of(instr.phase));
  what += fmt::format(", stage {} {}", program.stage, name_of(instr.lane));
  if (instr.chunk >= 0) what += fmt::format(", chunk {}", instr.chunk);
  if (instr.microbatch >= 0) what += fmt::format(", micro-batch {}", instr.microbatch);
  if (instr.layer >= 0) what += fmt::format(", layer {}", instr.layer);
  return what + fmt::format(", {:.1f} to {:.1f} \u00b5s", span.begin_us, span.end_us);
}

// 1, 2 or 5 times a power of ten, so that about ten ticks fit.
double tick_step(double length) {
  const double power = std::pow(10.0, std::floor(std::log10(length / 10.0)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (length / (factor * power) <= 12.0) return factor * power;
  return 10.0 * power;
}

class Picture {
 public:
  Picture(const std::vector<Program>& by_stage, const SimResult& result, const std::string& title)
      : programs_(by_stage),
        result_(result),
        title_(title),
        by_lane_(by_stage.size()),
        scale_(result.step_us > 0.0 ? kPlot / result.step_us : 0.0) {
    for (const Span& span : result.spans)
      by_lane_[span.stage][static_cast<std::size_t>(span.lane)].push_back(&span);
    lay_out();
  }

  std::string text() {
    std::string out = head();
    for (std::size_t s = 0; s < programs_.size(); ++s) band(out, s);
    axis(out);
    for (std::size_t s = 0; s < programs_.size(); ++s)
      for (int lane = 0; lane < kNumLanes; ++lane) row(out, s, lane);
    return out + "</svg>\n";
  }

 private:
  struct Band {
    double top = 0, height = 0;
    std::array<double, kNumLanes> row_top{};
  };

  static double row_height(int lane) {
    return static_cast<Lane>(lane) == Lane::kCompute || static_cast<Lane>(lane) == Lane::kEp
               ? kMainRow
               : kThinRow;
  }

  [[nodiscard]] double x_of(double us) const { return kLeft + us * scale_; }

  void lay_out() {
    double y = kTop;
    for (auto& lanes : by_lane_) {
      Band band{.top = y};
      y += kBandPad;
      for (int lane = 0; lane < kNumLanes; ++lane) {
        band.row_top[lane] = y;
        if (!lanes[lane].empty()) y += row_height(lane) + kRowGap;
      }
      y += kBandPad - kRowGap;
      band.height = y - band.top;
      y += kBandGap;
      bands_.push_back(band);
    }
    bottom_ = y - kBandGap;
  }

  [[nodiscard]] std::string head() const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {:.0f}\" "
        "font-family=\"'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<style>\n"
        "text{{fill:#2a2f36}} .n{{font-size:11px;text-anchor:middle;pointer-events:none}} "
        ".w{{fill:#fff}} .l{{font-size:11px;fill:#6a7280;text-anchor:end}} "
        ".s{{font-size:13px;font-weight:bold}} .k{{font-size:12px}} .b{{fill:#f4f6f9}} "
        ".g{{stroke:#dde2e9;stroke-width:1}} "
        ".a{{font-size:11px;fill:#6a7280;text-anchor:middle}}\n",
        kWidth, bottom_ + kBottom);
    for (int tone = 0; tone < kNumTones; ++tone)
      for (const Dir dir : {Dir::kFwd, Dir::kBwd})
        out += fmt::format(".{}{{fill:{}}}", class_of(static_cast<Tone>(tone), dir),
                           kShades[tone].fill[static_cast<int>(dir)]);
    out += "\n</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    out += fmt::format("<text x=\"24\" y=\"34\" font-size=\"20\" font-weight=\"bold\">{}</text>\n",
                       escaped(title_));
    out += fmt::format("<text x=\"{}\" y=\"34\" class=\"k\" text-anchor=\"end\">{}</text>\n",
                       kWidth - kRight, summary());
    return out + legend();
  }

  [[nodiscard]] std::string summary() const {
    std::string text =
        fmt::format("step {}, bubble {:.1f} %", time_text(result_.step_us, result_.step_us),
                    100.0 * result_.bubble);
    if (result_.ep_us > 0.0)
      text += fmt::format(", expert all-to-all {:.1f} % hidden under compute",
                          100.0 * result_.ep_hidden_us / result_.ep_us);
    return text;
  }

  // Tones that occur, each with a swatch per direction in which it occurs.
  [[nodiscard]] std::string legend() const {
    std::array<std::array<bool, 2>, kNumTones> seen{};
    for (const Span& span : result_.spans) {
      const Instr& instr = programs_[span.stage].instrs[span.instr];
      const Tone tone = tone_of(instr);
      const bool neutral = tone == Tone::kGradients || tone == Tone::kHostWait;
      seen[static_cast<int>(tone)][neutral ? 0 : static_cast<int>(instr.dir)] = true;
    }
    std::string out;
    double x = 24;
    const double y = 54;
    const auto swatch = [&](Tone tone, Dir dir) {
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"14\" height=\"14\" rx=\"2\" "
          "class=\"{}\"/>",
          x, y, class_of(tone, dir));
      x += 16;
    };
    const auto label = [&](std::string_view text) {
      out +=
          fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"k\">{}</text>\n", x + 3, y + 11.5, text);
      x += 3 + 6.9 * static_cast<double>(text.size()) + 16;
    };
    for (int tone = 0; tone < kNumTones; ++tone) {
      if (!seen[tone][0] && !seen[tone][1]) continue;
      for (const Dir dir : {Dir::kFwd, Dir::kBwd})
        if (seen[tone][static_cast<int>(dir)]) swatch(static_cast<Tone>(tone), dir);
      label(kShades[tone].label);
    }
    return out + fmt::format(
                     "<text x=\"24\" y=\"{}\" class=\"k\" fill-opacity=\"0.75\">"
                     "blue: forward, orange: backward; numbers are micro-batches</text>\n",
                     y + 31);
  }

  void band(std::string& out, std::size_t s) const {
    const Band& band = bands_[s];
    out += fmt::format(
        "<rect x=\"12\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" rx=\"6\" "
        "class=\"b\"/>\n<text x=\"24\" y=\"{:.1f}\" class=\"s\">stage {}</text>\n",
        band.top, kWidth - 24, band.height, band.top + kBandPad + 16, programs_[s].stage);
    for (int lane = 0; lane < kNumLanes; ++lane)
      if (!by_lane_[s][lane].empty())
        out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" class=\"l\">{}</text>\n", kLeft - 8,
                           band.row_top[lane] + row_height(lane) / 2 + 4,
                           name_of(static_cast<Lane>(lane)));
  }

  void axis(std::string& out) const {
    if (result_.step_us <= 0.0) return;
    const double step = tick_step(result_.step_us);
    for (int k = 0; k * step <= result_.step_us * (1 + 1e-9); ++k) {
      const double x = x_of(k * step);
      out += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "class=\"g\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" class=\"a\">{4}</text>\n",
          x, kTop, bottom_ + 6, bottom_ + 22, time_text(k * step, result_.step_us));
    }
  }

  void row(std::string& out, std::size_t s, int lane) const {
    const std::vector<const Span*>& spans = by_lane_[s][lane];
    for (std::size_t i = 0; i < spans.size();) {
      const std::size_t next = end_of_block(spans, i);
      const Span* longest = *std::max_element(
          spans.begin() + static_cast<std::ptrdiff_t>(i),
          spans.begin() + static_cast<std::ptrdiff_t>(next), [](const Span* a, const Span* b) {
            return a->end_us - a->begin_us < b->end_us - b->begin_us;
          });
      block(out, s, lane, x_of(spans[i]->begin_us), x_of(spans[next - 1]->end_us), *longest,
            next == i + 1);
      i = next;
    }
  }

  // A span, or a run of slivers without visible gaps that are together no wider than one.
  [[nodiscard]] std::size_t end_of_block(const std::vector<const Span*>& spans,
                                         std::size_t i) const {
    const double begin = x_of(spans[i]->begin_us);
    std::size_t next = i + 1;
    while (next < spans.size() && x_of(spans[next]->end_us) - begin < kSliver &&
           x_of(spans[next]->begin_us) - x_of(spans[next - 1]->end_us) < kMinGap)
      ++next;
    return next;
  }

  // `span` gives the look; `alone`: it is all there is in the block.
  void block(std::string& out, std::size_t s, int lane, double begin, double end, const Span& span,
             bool alone) const {
    const Instr& instr = programs_[s].instrs[span.instr];
    const Tone tone = tone_of(instr);
    const double top = bands_[s].row_top[lane], height = row_height(lane), width = end - begin;
    const double gap = width > 3 ? 0.5 : 0.0;  // lets neighbours of one shade be told apart
    out +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" class=\"{}\"",
                    begin, top, std::max(width - gap, kSliver), height, class_of(tone, instr.dir));
    if (width > 6) out += " rx=\"2\"";
    if (!alone || width < 2.0) {
      out += "/>\n";
      return;
    }
    out += fmt::format("><title>{}</title></rect>", escaped(tooltip(programs_[s], instr, span)));
    const std::string number = instr.microbatch >= 0 ? std::to_string(instr.microbatch) : "";
    if (!number.empty() && width >= kLetter * static_cast<double>(number.size()) + 3) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>",
                         (begin + end) / 2, top + height / 2 + 4,
                         kShades[static_cast<int>(tone)].dark ? "n w" : "n", number);
    }
    out += "\n";
  }

  const std::vector<Program>& programs_;
  const SimResult& result_;
  const std::string& title_;
  std::vector<std::array<std::vector<const Span*>, kNumLanes>> by_lane_;  // in order of time
  double scale_;  // picture units per microsecond
  std::vector<Band> bands_;
  double bottom_ = 0;
};

}  // namespace

std::string to_svg(const std::vector<Program>& by_stage, const SimResult& result,
                   const std::string& title) {
  return Picture(by_stage, result, title).text();
}

}  // namespace tandem
