#include <fstream>
#include <map>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/trace/trace.h"

namespace tandem {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw_error(ExitCode::kBadInput,
                "cannot read {}: give a trace that logging.trace wrote, such as trace-rank0.json",
                path);
  return std::move(text).str();
}

// "thread_name" events name the lanes.
std::map<std::int64_t, std::string> lanes_of(const Json::Array& events, const std::string& path) {
  std::map<std::int64_t, std::string> lanes;
  for (const Json& event : events) {
    const Json* name = event.find("name");
    if (name == nullptr || name->as_string(path) != "thread_name") continue;
    lanes[event.at("tid", path).as_int(path + ": tid")] =
        excerpt(event.at("args", path).at("name", path).as_string(path + ": a lane's name"));
  }
  return lanes;
}

int place(const Json& args, const char* key, const std::string& path) {
  constexpr std::int64_t kMost = 1 << 30;
  const Json* value = args.find(key);
  return value == nullptr ? -1 : static_cast<int>(value->as_int(path + ": " + key, 0, kMost));
}

// 30 years either way: sums and differences of such times stay exact enough to draw.
double micros(const Json& event, const char* key, double least, const std::string& path) {
  constexpr double kMost = 1e15;
  const double value = event.at(key, path).as_double(fmt::format("{}: {}", path, key));
  if (!(value >= least && value <= kMost))
    throw_error(ExitCode::kBadInput, "{}: {} is {}, outside [{}, {}]", path, key, value, least,
                kMost);
  return value;
}

TraceSpan span_of(const Json& event, const std::map<std::int64_t, std::string>& lanes,
                  const std::string& path) {
  const std::int64_t tid = event.at("tid", path).as_int(path + ": tid");
  const auto lane = lanes.find(tid);
  if (lane == lanes.end())
    throw_error(ExitCode::kBadInput, "{}: an event has tid {}, which no thread_name names", path,
                tid);
  const double begin = micros(event, "ts", -1e15, path);
  const Json& args = event.at("args", path);
  return {.lane = lane->second,
          .name = excerpt(event.at("name", path).as_string(path + ": name")),
          .category = excerpt(event.at("cat", path).as_string(path + ": cat")),
          .begin_us = begin,
          .end_us = begin + micros(event, "dur", 0.0, path),
          .chunk = place(args, "chunk", path),
          .microbatch = place(args, "microbatch", path),
          .layer = place(args, "layer", path)};
}

ChromeTrace trace_of(const Json& root, const std::string& path) {
  if (root.find("traceEvents") == nullptr)
    throw_error(ExitCode::kBadInput, "{} is not a trace: it has no traceEvents", path);
  ChromeTrace trace;
  trace.rank = static_cast<int>(root.at("distributedInfo", path)
                                    .at("rank", path)
                                    .as_int(path + ": rank", 0, std::int64_t{1} << 30));
  if (const Json* other = root.find("otherData")) {
    trace.about = other->at("about", path).as_string(path + ": about");
    if (const Json* exchanges = other->find("exchanges"))
      trace.exchanges = exchanges->as_bool(path + ": exchanges");
  }
  const Json::Array& events = root.at("traceEvents", path).as_array(path + ": traceEvents");
  const auto lanes = lanes_of(events, path);
  for (const Json& event : events)
    if (event.at("ph", path).as_string(path + ": ph") == "X")
      trace.spans.push_back(span_of(event, lanes, path));
  return trace;
}

// Lines of metrics are many documents, not one.
Json parsed(const std::string& text, const std::string& path) {
  constexpr JsonLimits kLimits{.bytes = std::size_t{1} << 30};
  try {
    return parse_json(text, path, ExitCode::kBadInput, kLimits);
  } catch (const Error& error) {
    throw_error(error.code(), "{} is not a trace, which is one JSON document ({})", path,
                error.what());
  }
}

}  // namespace

ChromeTrace read_chrome_trace(const std::string& path) {
  const std::string text = contents(path);
  try {
    return trace_of(parsed(text, path), path);
  } catch (const Error& error) {
    throw_error(error.code(), "{}; give a trace that logging.trace wrote, such as trace-rank0.json",
                error.what());
  }
}

}  // namespace tandem
