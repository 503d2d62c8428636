#include "tandem/trace/trace.h"

#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"

using namespace tandem;

namespace {

TraceSpan span(const std::string& lane, double begin, double end) {
  return {lane, lane + "_node", "F", begin, end};
}

}  // namespace

TEST_CASE("overlap is measured on unions of intervals") {
  // ep:      [0,10) [20,30), [25,40) and one inside: 30 us.  compute: [5,22) twice, [38,50): 29 us.
  const std::vector<TraceSpan> spans{
      span("ep", 20, 30),      span("ep", 0, 10),       span("ep", 25, 40),
      span("ep", 26, 27),      span("compute", 5, 22),  span("compute", 5, 22),
      span("compute", 38, 50), span("recv_fwd", 0, 99), span("host", 1, 4),
      span("host", 3, 5),      span("dp", 0, 7)};
  const OverlapStats stats = overlap_stats(spans);
  CHECK(stats.ep_us == 30);
  CHECK(stats.compute_us == 29);
  CHECK(stats.hidden_us == 5 + 2 + 2);  // [5,10) [20,22) [38,40)
  CHECK(stats.host_wait_us == 4);
  CHECK(stats.hidden_share() == Approx(0.3));
}

TEST_CASE("overlap without spans, without compute and without all-to-alls") {
  CHECK(overlap_stats({}).hidden_share() == 1.0);
  CHECK(overlap_stats({span("compute", 0, 5)}).hidden_share() == 1.0);
  CHECK(overlap_stats({span("ep", 0, 5)}).hidden_share() == 0.0);
  CHECK(overlap_stats({span("ep", 0, 5), span("compute", 5, 9)}).hidden_us == 0);
  // An event that was never reached has time -1; it must not add time.
  CHECK(overlap_stats({span("ep", 3, -1)}).ep_us == 0);
}

TEST_CASE("a chrome trace has a named row per lane and all spans with their places") {
  const TempFolder folder;
  const std::string path = folder / "trace.json";
  const std::vector<TraceSpan> spans{
      {"send_fwd", "SEND", "F", 30, 31, 0, 1, -1},
      {"ep", "dispatch_fwd", "F", 10.25, 20.5, 1, 2, 3},
      {"compute", "quote\" \\ and\nline", "B", 12, 19, 0, 0, 0},
  };
  write_chrome_trace(path, 5, spans);
  write_chrome_trace(path, 5, spans);  // replaces
  const Json trace = parse_json(read_bytes(path), path);
  CHECK(trace.at("distributedInfo", "").at("rank", "").as_int("rank") == 5);

  std::map<std::string, std::int64_t> row;  // lane -> tid
  std::map<std::string, const Json*> events;
  std::string process;
  for (const Json& event : trace.at("traceEvents", "").as_array("")) {
    const std::string name = event.at("name", "").as_string("");
    CHECK(event.at("pid", "").as_int("") == 5);
    if (event.at("ph", "").as_string("") == "X") events[name] = &event;
    if (name == "process_name") process = event.at("args", "").at("name", "").as_string("");
    if (name == "thread_name") {
      row[event.at("args", "").at("name", "").as_string("")] = event.at("tid", "").as_int("");
    }
  }
  CHECK(process == "rank 5");
  REQUIRE(row.size() == 3);
  CHECK(row["compute"] < row["ep"]);
  CHECK(row["ep"] < row["send_fwd"]);

  REQUIRE(events.size() == 3);
  REQUIRE(events.count("dispatch_fwd") == 1);
  const Json& dispatch = *events["dispatch_fwd"];
  CHECK(dispatch.at("tid", "").as_int("") == row["ep"]);
  CHECK(dispatch.at("ts", "").as_double("") == 10.25);
  CHECK(dispatch.at("dur", "").as_double("") == 10.25);
  CHECK(dispatch.at("cat", "").as_string("") == "F");
  CHECK(dispatch.at("args", "").at("chunk", "").as_int("") == 1);
  CHECK(dispatch.at("args", "").at("microbatch", "").as_int("") == 2);
  CHECK(dispatch.at("args", "").at("layer", "").as_int("") == 3);
  CHECK(events.count(spans[2].name) == 1);
  CHECK(events["SEND"]->at("args", "").find("layer") == nullptr);
}

TEST_CASE("a trace is read back as it was written") {
  const TempFolder folder;
  const std::string path = folder / "trace.json";
  const std::vector<TraceSpan> spans{
      {"compute", "attention_bwd_input", "B", 12, 19.5, 0, 0, 0},
      {"ep", "dispatch_fwd", "F", 10.25, 20.5, 1, 2, 3},
      {"dp", "OPT_STEP", "B", 30, 31, -1, -1, -1},
  };
  write_chrome_trace(path, 5, spans, "two \"words\"");
  const ChromeTrace trace = read_chrome_trace(path);
  CHECK(trace.rank == 5);
  CHECK(trace.about == "two \"words\"");
  REQUIRE(trace.spans.size() == spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TraceSpan &a = trace.spans[i], &b = spans[i];
    CHECK(std::tie(a.lane, a.name, a.category, a.begin_us, a.end_us, a.chunk, a.microbatch,
                   a.layer) == std::tie(b.lane, b.name, b.category, b.begin_us, b.end_us, b.chunk,
                                        b.microbatch, b.layer));
  }
  write_chrome_trace(path, 0, spans);
  CHECK(read_chrome_trace(path).about.empty());
}

TEST_CASE("the time of a lane that no compute covers is exposed") {
  const auto times = lane_times({{"ep", "dispatch_fwd", "F", 0, 10, 0, 0, 0},
                                 {"ep", "combine_fwd", "F", 8, 20, 0, 0, 0},
                                 {"compute", "experts_fwd", "F", 5, 12, 0, 0, 0},
                                 {"dp", "OPT_STEP", "B", 30, 31, -1, -1, -1}});
  REQUIRE(times.size() == 3);
  CHECK(times[0].lane == "ep");
  CHECK(times[0].busy_us == 20);
  CHECK(times[0].exposed_us == 13);
  CHECK(times[1].lane == "compute");
  CHECK(times[1].exposed_us == 0);
  CHECK(times[2].exposed_us == 1);
}

TEST_CASE("a trace that cannot be written names its path") {
  CHECK_THROWS_WITH(write_chrome_trace("/proc/no/such/folder/t.json", 0, {}),
                    Catch::Contains("/proc/no/such/folder/t.json"));
  CHECK_THROWS_WITH(try_chrome_trace("/proc/no/such/folder/t.json"),
                    Catch::Contains("/proc/no/such/folder/t.json"));
  CHECK_THROWS_WITH(try_chrome_trace("/proc"), Catch::Contains("/proc is a folder"));
}
