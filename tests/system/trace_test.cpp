// What a person sees in the trace of a paired step: with an event per direction the dispatch of the
// next micro-batch runs beside the experts' backward pass, with a shared event it waits for its
// end. Asserted is the order, never the seconds.
#include <algorithm>
#include <cstdio>

#include "tandem/base/json.h"
#include "training.h"

namespace tandem {
namespace {

constexpr int kLayers = 2;
constexpr int kMicrobatches = 4;

// Experts whose backward pass takes milliseconds, so that what can begin beside it does.
const Overrides kModel = {fmt::format("model.layers={}", kLayers),
                          "model.hidden=128",
                          "model.heads=4",
                          "model.moe_ffn=1024",
                          "train.seq_len=256",
                          "train.alltoall_delay_us=2000"};

struct Span {
  std::string name;
  std::int64_t microbatch, layer;
  double begin, end;
};

std::vector<Span> read_trace(const std::string& path) {
  const Json root = parse_json(read_bytes(path), path);
  std::vector<Span> spans;
  for (const Json& event : root.at("traceEvents", path).as_array(path)) {
    if (event.at("ph", path).as_string("ph") != "X") continue;
    const Json& args = event.at("args", path);
    if (args.find("layer") == nullptr) continue;
    const double begin = event.at("ts", path).as_double("ts");
    spans.push_back({event.at("name", path).as_string("name"),
                     args.at("microbatch", path).as_int("microbatch"),
                     args.at("layer", path).as_int("layer"), begin,
                     begin + event.at("dur", path).as_double("dur")});
  }
  return spans;
}

// Of the traced steps: pairs of an experts' backward pass and the dispatch that rides with it, and
// how many dispatches began before the backward pass had ended.
struct Overlap {
  int pairs = 0, beside = 0;
};

Overlap count_overlap(const std::vector<Span>& spans) {
  Overlap overlap;
  const auto all = [&](const char* name, std::int64_t microbatch, std::int64_t layer) {
    std::vector<Span> found;
    for (const Span& span : spans)
      if (span.name == name && span.microbatch == microbatch && span.layer == layer)
        found.push_back(span);
    return found;
  };
  for (int m = 0; m + 1 < kMicrobatches; ++m)
    for (int layer = 0; layer < kLayers; ++layer) {
      // The forward pass climbs while the backward pass descends.
      const auto backward = all("experts_bwd_input", m, kLayers - 1 - layer);
      const auto dispatch = all("dispatch_fwd", m + 1, layer);
      REQUIRE(!backward.empty());
      REQUIRE(backward.size() == dispatch.size());
      for (std::size_t step = 0; step < backward.size(); ++step) {
        ++overlap.pairs;
        overlap.beside += dispatch[step].begin < backward[step].end ? 1 : 0;
      }
    }
  return overlap;
}

Overlap traced(int ranks, const Overrides& overrides) {
  const TempFolder folder;
  (void)train(ranks, kModel + overrides +
                         Overrides{fmt::format("parallel.ep={}", ranks), "train.steps=3",
                                   "logging.trace=" + (folder / "trace"), "logging.trace_begin=1",
                                   "logging.trace_steps=2"});
  Overlap sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const Overlap one = count_overlap(read_trace(folder / fmt::format("trace-rank{}.json", rank)));
    sum.pairs += one.pairs;
    sum.beside += one.beside;
  }
  return sum;
}

TEST_CASE("dispatch runs beside the experts' backward pass with an event per direction only") {
  const int ranks = GENERATE(1, 2);
  const Overrides batch = {fmt::format("train.global_batch={}", ranks * kMicrobatches)};
  const Overlap per_direction = traced(ranks, batch);
  const Overlap shared = traced(ranks, batch + Overrides{"overlap.events=shared"});
  const Overlap off = traced(ranks, batch + Overrides{"overlap.enabled=false"});
  std::printf(
      "%d rank(s), dispatches beside experts_bwd_input: per direction %d of %d, shared %d\n", ranks,
      per_direction.beside, per_direction.pairs, shared.beside);
  REQUIRE(per_direction.pairs == 2 * ranks * (kMicrobatches - 1) * kLayers);
  // An event per direction allows it, and only a busy machine or a late peer can hold it back; the
  // shared event forbids it.
  CHECK(per_direction.beside > per_direction.pairs / 2);
  CHECK(shared.beside == 0);
  CHECK(off.beside == 0);
}

// The fastest step: what the machine does when nothing else runs on it.
double step_ms(const Overrides& overrides) {
  const Training training = train(
      2, kModel + Overrides{"parallel.ep=2", "train.steps=6", "model.moe_ffn=256"} + overrides);
  double seconds = training.steps.back().seconds;
  for (const StepReport& step : training.steps) seconds = std::min(seconds, step.seconds);
  return 1e3 * seconds;
}

TEST_CASE("step times with a slow all-to-all are printed") {
  const double per_direction = step_ms({});
  const double shared = step_ms({"overlap.events=shared"});
  const double off = step_ms({"overlap.enabled=false"});
  std::printf("fastest step: per direction %.1f ms, shared event %.1f ms, no overlap %.1f ms\n",
              per_direction, shared, off);
  CHECK(per_direction > 0.0);
}

}  // namespace
}  // namespace tandem
