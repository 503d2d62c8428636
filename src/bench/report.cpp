// A report as a table for people and as JSON for programs.
#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "tandem/base/json_writer.h"
#include "tandem/base/units.h"
#include "tandem/bench/bench.h"
#include "tandem/config/load.h"

namespace tandem::bench {
namespace {

// Four significant digits without an exponent: 0.01234, 1.234, 12.34, 1234, 123400. NaN: "-".
std::string number(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0.0 || !std::isfinite(value)) return "0";
  const int digits = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(3 - digits, 0, 6));
}

using Line = std::vector<std::string>;

Line header(const std::vector<Row>& rows) {
  Line line = {"", "shape", "ms", "min", "rate", "", "of limit"};
  if (!rows.empty())
    for (const auto& [name, value] : rows.front().more) line.push_back(name);
  return line;
}

Line cells(const Row& row) {
  Line line = {row.name,
               row.shape,
               number(row.ms),
               number(row.min_ms),
               row.rate > 0 ? number(row.rate) : "",
               row.unit,
               row.share > 0 ? fmt::format("{:.1f} %", 100 * row.share) : ""};
  for (const auto& [name, value] : row.more) line.push_back(number(value));
  return line;
}

bool left_aligned(std::size_t column) {
  return column < 2 || column == 5;
}

std::string render(const std::vector<std::pair<std::string, Line>>& lines) {
  std::vector<std::size_t> width;
  for (const auto& [group, line] : lines) {
    width.resize(std::max(width.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string text, last;
  for (const auto& [group, line] : lines) {
    if (group != last) text += group + "\n";
    last = group;
    std::string one = " ";
    for (std::size_t i = 0; i < line.size(); ++i)
      one += left_aligned(i) ? fmt::format(" {:<{}}", line[i], width[i])
                             : fmt::format("  {:>{}}", line[i], width[i]);
    text += one.substr(0, one.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

void write_rows(JsonWriter& json, const std::vector<Row>& rows) {
  json.begin_array();
  for (const Row& row : rows) {
    json.begin_object().key("group").value(row.group).key("name").value(row.name);
    json.key("shape").value(row.shape).key("ms").value(row.ms).key("min_ms").value(row.min_ms);
    json.key("flops").value(row.flops).key("bytes").value(row.bytes);
    json.key("rate").value(row.rate).key("unit").value(row.unit).key("share").value(row.share);
    for (const auto& [name, value] : row.more) json.key(name).value(value);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string to_table(const Report& report) {
  std::string text = fmt::format("bench {}: {}, {}, {}", report.bench, report.device,
                                 counted(report.ranks, "rank"), counted(report.repeats, "repeat"));
  if (!report.transport.empty()) text += ", transport " + report.transport;
  std::vector<std::pair<std::string, Line>> lines = {{"", header(report.rows)}};
  for (const auto* rows : {&report.limits, &report.rows})
    for (const Row& row : *rows) lines.emplace_back(row.group, cells(row));
  text += "\n\n" + render(lines);
  text.pop_back();  // whoever prints it ends the line
  return text;
}

std::string to_json(const Report& report, const std::string& command, const RunConfig& config) {
  JsonWriter json(1);
  json.begin_object();
  json.key("bench").value(report.bench).key("device").value(report.device);
  json.key("date").value(fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))));
  json.key("command").value(command);
  json.key("ranks").value(report.ranks).key("repeats").value(report.repeats);
  if (!report.transport.empty()) json.key("transport").value(report.transport);
  json.key("limits");
  write_rows(json, report.limits);
  json.key("rows");
  write_rows(json, report.rows);
  json.key("config").raw(to_json(config));
  json.end_object();
  return json.str() + "\n";
}

}  // namespace tandem::bench
