#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/atomic_file.h"
#include "tandem/base/json_writer.h"
#include "tandem/trace/trace.h"

namespace tandem {
namespace {

// Rows from top to bottom: compute and ep beside each other, the rest as they come.
std::vector<std::string> lanes_of(const std::vector<TraceSpan>& spans) {
  std::vector<std::string> lanes;
  const auto add = [&](const std::string& lane) {
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
  };
  for (const char* first : {"compute", "ep"}) {
    for (const TraceSpan& span : spans) {
      if (span.lane == first) add(span.lane);
    }
  }
  for (const TraceSpan& span : spans) add(span.lane);
  return lanes;
}

void metadata(JsonWriter& out, const char* what, int rank, int tid, const char* key,
              const std::string& json) {
  out.begin_object().key("ph").value("M").key("name").value(what).key("pid").value(rank);
  out.key("tid").value(tid).key("args").begin_object().key(key).raw(json).end_object();
  out.end_object();
}

void span_event(JsonWriter& out, const TraceSpan& span, int rank, int tid) {
  out.begin_object().key("ph").value("X").key("name").value(span.name);
  out.key("cat").value(span.category).key("pid").value(rank).key("tid").value(tid);
  out.key("ts").value(span.begin_us).key("dur").value(std::max(0.0, span.end_us - span.begin_us));
  out.key("args").begin_object();
  if (span.chunk >= 0) out.key("chunk").value(span.chunk);
  if (span.microbatch >= 0) out.key("microbatch").value(span.microbatch);
  if (span.layer >= 0) out.key("layer").value(span.layer);
  out.end_object().end_object();
}

}  // namespace

std::string trace_file(const std::string& prefix, int rank) {
  return fmt::format("{}-rank{}.json", prefix, rank);
}

void try_chrome_trace(const std::string& path) {
  AtomicFile file(path);
  file.write("\n");
  file.close();
}

void write_chrome_trace(const std::string& path, int rank, const std::vector<TraceSpan>& spans,
                        const std::string& about, bool exchanges) {
  const std::vector<std::string> lanes = lanes_of(spans);
  JsonWriter out;
  out.begin_object().key("displayTimeUnit").value("ms");
  // Tools that compare the ranks of a job tell the files apart by this.
  out.key("distributedInfo").begin_object().key("rank").value(rank).end_object();
  if (!about.empty()) {
    out.key("otherData").begin_object().key("about").value(about);
    out.key("exchanges").value(exchanges).end_object();
  }
  out.key("traceEvents").begin_array();
  metadata(out, "process_name", rank, 0, "name", json_quote(fmt::format("rank {}", rank)));
  metadata(out, "process_sort_index", rank, 0, "sort_index", std::to_string(rank));
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const int tid = static_cast<int>(i) + 1;
    metadata(out, "thread_name", rank, tid, "name", json_quote(lanes[i]));
    metadata(out, "thread_sort_index", rank, tid, "sort_index", std::to_string(tid));
  }
  for (const TraceSpan& span : spans) {
    const auto lane = std::find(lanes.begin(), lanes.end(), span.lane);
    span_event(out, span, rank, static_cast<int>(lane - lanes.begin()) + 1);
  }
  out.end_array().end_object();

  replace_file(path, out.str() + "\n");
}

}  // namespace tandem
