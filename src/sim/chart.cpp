#include "tandem/sim/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "tandem/base/units.h"

namespace tandem {
namespace {

// Geometry in picture units; the viewBox scales them to any size.
constexpr double kWidth = 1600, kLeft = 164, kRight = 24, kTop = 92, kBottom = 46;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kThinRow = 13, kRowGap = 3, kBandPad = 8, kBandGap = 12;
constexpr double kTextSize = 11;  // of texts in boxes
constexpr double kSliver = 0.8;   // narrower boxes share a column with their neighbours
constexpr double kColumn = 3;     // as wide as this, if there are more of them
constexpr double kRounded = 6;  // wider boxes have round corners and a rim against their neighbours
constexpr std::string_view kColumnNote =
    "Nodes too narrow to draw one by one share a column: each shade is as high as its share of the "
    "column's time, the rest is idle.";

struct Shade {
  std::string_view label;
  std::array<std::string_view, 2> fill;  // forward, backward
  bool dark;                             // needs white text
};
constexpr int kNumTones = static_cast<int>(Tone::kHostWait) + 1;
constexpr std::array<Shade, kNumTones> kShades = {{
    {"attention", {"#3f7fd6", "#d9661d"}, true},
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

const Shade& shade(Tone tone) {
  return kShades[static_cast<std::size_t>(tone)];
}

// Work of no direction.
bool neutral(Tone tone) {
  return tone == Tone::kGradients || tone == Tone::kHostWait;
}

// Width of a text in a box, no less than in DejaVu Sans, the widest font that a viewer may take.
double text_width(std::string_view text) {
  double em = 0;
  for (const char c : text) {
    if (c == 'm' || c == 'w' || c == 'M' || c == 'W')
      em += 0.99;
    else if (c >= 'A' && c <= 'Z')
      em += 0.79;
    else if (c == 'i' || c == 'j' || c == 'l' || c == ' ' || c == '\'')
      em += 0.32;
    else
      em += 0.64;
  }
  return kTextSize * em;
}

std::string class_of(Tone tone, Dir dir) {
  const bool backward = dir == Dir::kBwd && !neutral(tone);
  return fmt::format("{}{}", backward ? 'b' : 'f', static_cast<int>(tone));
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

// 1, 2 or 5 times a power of ten, so that about ten ticks fit.
double tick_step(double length) {
  const double power = std::pow(10.0, std::floor(std::log10(length / 10.0)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (length / (factor * power) <= 12.0) return factor * power;
  return 10.0 * power;
}

class Picture {
 public:
  explicit Picture(const Chart& chart)
      : chart_(chart),
        length_(std::max(0.0, chart.end_us - chart.begin_us)),
        scale_(length_ > 0.0 ? kPlot / length_ : 0.0) {
    lay_out();
  }

  std::string text() {
    std::string rows;
    for (const Band& band : bands_)
      for (const Row& row : band.rows) boxes(rows, row);
    std::string out = head();
    for (const Band& band : bands_) out += frame(band);
    out += axis() + rows;
    if (columns_)
      out +=
          fmt::format("<text x=\"24\" y=\"{:.1f}\" class=\"k\" fill-opacity=\"0.75\">{}</text>\n",
                      bottom_ + 40, kColumnNote);
    return out + "</svg>\n";
  }

 private:
  struct Row {
    const ChartRow* row;
    double top, height;
  };
  struct Band {
    const ChartBand* band;
    double top, height;
    std::vector<Row> rows;
  };

  [[nodiscard]] double x_of(double us) const {
    return kLeft + (std::clamp(us, chart_.begin_us, chart_.end_us) - chart_.begin_us) * scale_;
  }
  [[nodiscard]] bool shown(const ChartBox& box) const {
    return box.end_us >= chart_.begin_us && box.begin_us <= chart_.end_us;
  }

  void lay_out() {
    double y = kTop;
    for (const ChartBand& band : chart_.bands) {
      Band& laid = bands_.emplace_back(Band{&band, y, 0, {}});
      y += kBandPad;
      for (const ChartRow& row : band.rows) {
        if (std::none_of(row.boxes.begin(), row.boxes.end(),
                         [this](const ChartBox& box) { return shown(box); }))
          continue;
        laid.rows.push_back({&row, y, row.main ? chart_.main_row : kThinRow});
        y += laid.rows.back().height + kRowGap;
      }
      y += kBandPad - kRowGap;
      laid.height = y - laid.top;
      y += kBandGap;
    }
    bottom_ = y - kBandGap;
  }

  [[nodiscard]] std::string head() const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {:.0f}\" "
        "font-family=\"'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<style>\n"
        "text{{fill:#2a2f36}} .n{{font-size:{}px;text-anchor:middle;pointer-events:none}} "
        ".w{{fill:#fff}} .l{{font-size:11px;fill:#6a7280;text-anchor:end}} "
        ".s{{font-size:13px;font-weight:bold}} .k{{font-size:12px}} .b{{fill:#f4f6f9}} "
        ".g{{stroke:#dde2e9;stroke-width:1}} .e{{stroke:#f4f6f9;stroke-width:0.5}} "
        ".a{{font-size:11px;fill:#6a7280;text-anchor:middle}}\n",
        kWidth, bottom_ + kBottom, kTextSize);
    std::string hatches;
    for (int tone = 0; tone < kNumTones; ++tone) {
      const auto& fill = kShades[static_cast<std::size_t>(tone)].fill;
      out += fmt::format(".f{0}{{fill:{1}}}.b{0}{{fill:url(#h{0})}}", tone, fill[0]);
      hatches += fmt::format(
          "<pattern id=\"h{0}\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><rect width=\"7\" height=\"7\" fill=\"{1}\"/>"
          "<rect width=\"2\" height=\"7\" fill=\"#fff\" fill-opacity=\"0.25\"/></pattern>\n",
          tone, fill[1]);
    }
    out += "\n</style>\n<defs>\n" + hatches + "</defs>\n";
    out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    out += fmt::format("<text x=\"24\" y=\"34\" font-size=\"{}\" font-weight=\"bold\">{}</text>\n",
                       title_size(), escaped(chart_.title));
    out += fmt::format("<text x=\"{}\" y=\"34\" class=\"k\" text-anchor=\"end\">{}</text>\n",
                       kWidth - kRight, escaped(chart_.summary));
    return out + legend();
  }

  // The title leaves the summary its room.
  [[nodiscard]] double title_size() const {
    const double room =
        kWidth - 24 - kRight - 30 - 6.2 * static_cast<double>(chart_.summary.size());
    const auto letters = static_cast<double>(std::max<std::size_t>(1, chart_.title.size()));
    return std::floor(std::clamp(room / (0.56 * letters), 12.0, 20.0));
  }

  // Tones that occur, each with a swatch per direction in which it occurs.
  [[nodiscard]] std::string legend() const {
    std::array<std::array<bool, 2>, kNumTones> seen{};
    for (const ChartBand& band : chart_.bands)
      for (const ChartRow& row : band.rows)
        for (const ChartBox& box : row.boxes)
          if (shown(box))
            seen[static_cast<std::size_t>(box.tone)]
                [neutral(box.tone) ? 0 : static_cast<std::size_t>(box.dir)] = true;
    std::string out;
    double x = 24;
    constexpr double kY = 54;
    for (std::size_t tone = 0; tone < kNumTones; ++tone) {
      if (!seen[tone][0] && !seen[tone][1]) continue;
      for (const Dir dir : {Dir::kFwd, Dir::kBwd}) {
        if (!seen[tone][static_cast<std::size_t>(dir)]) continue;
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{}\" width=\"14\" height=\"14\" rx=\"2\" class=\"{}\"/>", x, kY,
            class_of(static_cast<Tone>(tone), dir));
        x += 16;
      }
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"k\">{}</text>\n", x + 3, kY + 11.5,
                         kShades[tone].label);
      x += 3 + 6.9 * static_cast<double>(kShades[tone].label.size()) + 16;
    }
    return out + fmt::format(
                     "<text x=\"24\" y=\"{}\" class=\"k\" fill-opacity=\"0.75\">blue: forward, "
                     "orange and hatched: backward{}</text>\n",
                     kY + 31, chart_.hint.empty() ? "" : "; " + escaped(chart_.hint));
  }

  [[nodiscard]] static std::string frame(const Band& band) {
    std::string out = fmt::format(
        "<rect x=\"12\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" rx=\"6\" class=\"b\"/>\n"
        "<text x=\"24\" y=\"{:.1f}\" class=\"s\">{}</text>\n",
        band.top, kWidth - 24, band.height, band.top + kBandPad + 16, escaped(band.band->label));
    for (const Row& row : band.rows)
      out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" class=\"l\">{}</text>\n", kLeft - 8,
                         row.top + row.height / 2 + 4, escaped(row.row->label));
    return out;
  }

  [[nodiscard]] std::string axis() const {
    if (length_ <= 0.0) return "";
    std::string out;
    const double step = tick_step(length_);
    // Sums of many steps are inexact: a tick at an end must not be lost to that. Adding zero turns
    // a negative zero, which would be printed so, into zero.
    const double slack = 1e-9 * length_;
    for (double k = std::ceil((chart_.begin_us - slack) / step) + 0.0;
         k * step <= chart_.end_us + slack; ++k) {
      out += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "class=\"g\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" class=\"a\">{4}</text>\n",
          x_of(k * step), kTop, bottom_ + 6, bottom_ + 22,
          time_text(k * step, std::max(std::abs(chart_.begin_us), std::abs(chart_.end_us))));
    }
    return out;
  }

  void boxes(std::string& out, const Row& row) {
    const std::vector<ChartBox>& all = row.row->boxes;
    for (std::size_t i = 0; i < all.size();) {
      if (!shown(all[i])) {
        ++i;
        continue;
      }
      const std::size_t next = end_of_column(all, i);
      if (next - i > 1)
        column(out, row, all, i, next);
      else
        box(out, row, all[i]);
      i = next;
    }
  }

  [[nodiscard]] double width_of(const ChartBox& box) const {
    return x_of(box.end_us) - x_of(box.begin_us);
  }

  // From a sliver on, those that begin in the same column; one box of any other width.
  [[nodiscard]] std::size_t end_of_column(const std::vector<ChartBox>& all, std::size_t i) const {
    const double end = x_of(all[i].begin_us) + kColumn;
    std::size_t next = i;
    while (next < all.size() && shown(all[next]) && width_of(all[next]) < kSliver &&
           x_of(all[next].end_us) <= end)
      ++next;
    return std::max(next, i + 1);
  }

  // The slivers [i, next), by look. A column reaches the next box if that is near, so that a busy
  // part looks like one.
  void column(std::string& out, const Row& row, const std::vector<ChartBox>& all, std::size_t i,
              std::size_t next) {
    struct Part {
      double width = 0;
      int count = 0;
    };
    std::array<std::array<Part, 2>, kNumTones> parts{};
    for (std::size_t k = i; k < next; ++k) {
      Part& part =
          parts[static_cast<std::size_t>(all[k].tone)][static_cast<std::size_t>(all[k].dir)];
      part.width += width_of(all[k]);
      ++part.count;
    }
    const double begin = x_of(all[i].begin_us);
    double end = x_of(all[next - 1].end_us);
    if (next < all.size() && x_of(all[next].begin_us) < end + kColumn)
      end = std::clamp(x_of(all[next].begin_us), end, std::max(end, begin + kColumn));
    double y = row.top + row.height;
    for (std::size_t tone = 0; tone < kNumTones; ++tone) {
      for (const Dir dir : {Dir::kFwd, Dir::kBwd}) {
        const Part& part = parts[tone][static_cast<std::size_t>(dir)];
        if (part.count == 0) continue;
        const double height = end > begin ? row.height * part.width / (end - begin) : 0.0;
        y -= height;
        out += fmt::format(
            "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.3f}\" height=\"{:.2f}\" class=\"{}\" "
            "data-n=\"{}\"/>\n",
            begin, y, end - begin, height, class_of(static_cast<Tone>(tone), dir), part.count);
      }
    }
    columns_ = true;
  }

  void box(std::string& out, const Row& row, const ChartBox& box) const {
    const double begin = x_of(box.begin_us), width = width_of(box);
    const bool wide = width > kRounded;
    out += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.3f}\" height=\"{}\" class=\"{}{}\"{} "
        "data-n=\"1\"",
        begin, row.top, width, row.height, class_of(box.tone, box.dir), wide ? " e" : "",
        wide ? " rx=\"2\"" : "");
    if (width < 2.0) {
      out += "/>\n";
      return;
    }
    out += fmt::format("><title>{}</title></rect>", escaped(box.tooltip));
    for (const std::string& label : box.labels) {
      if (width < text_width(label) + 3 || row.height < kThinRow) continue;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>",
                         begin + width / 2, row.top + row.height / 2 + 4,
                         shade(box.tone).dark ? "n w" : "n", escaped(label));
      break;
    }
    out += "\n";
  }

  const Chart& chart_;
  const double length_;
  const double scale_;  // picture units per microsecond
  std::vector<Band> bands_;
  double bottom_ = 0;
  bool columns_ = false;  // whether there is any
};

}  // namespace

std::string to_svg(const Chart& chart) {
  return Picture(chart).text();
}

}  // namespace tandem
