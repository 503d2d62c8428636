#include "tandem/runtime/spans.h"

#include <fmt/core.h>

#include <array>

namespace tandem {
namespace {

constexpr int kNumDirs = 2;
// By direction; the ep lane's are lighter than those of the rest.
constexpr std::array<std::uint32_t, kNumDirs> kColours = {0xFF3F7FD6, 0xFFE2762F};
constexpr std::array<std::uint32_t, kNumDirs> kEpColours = {0xFF7FC4D6, 0xFFE59A9A};

}  // namespace

std::string span_name(const Instr& instr) {
  if (instr.op != Op::kRun) return std::string(name_of(instr.op));
  return fmt::format("{}_{}", name_of(instr.node), name_of(instr.phase));
}

std::string range_name(const Instr& instr) {
  std::string name = span_name(instr);
  if (instr.layer >= 0) name += fmt::format(" L{}", instr.layer);
  if (instr.microbatch >= 0) name += fmt::format(" mb{}", instr.microbatch);
  return name;
}

std::vector<TraceSpan> to_spans(const std::vector<TimedInstr>& timed, const Program& program) {
  std::vector<TraceSpan> spans;
  spans.reserve(timed.size());
  for (const TimedInstr& t : timed) {
    const Instr& instr = program.instrs[static_cast<std::size_t>(t.instr)];
    spans.push_back({std::string(name_of(t.lane)), span_name(instr),
                     std::string(name_of(instr.dir)), t.begin_us, t.end_us, instr.chunk,
                     instr.microbatch, instr.layer});
  }
  return spans;
}

std::vector<RangeCategory> range_categories() {
  std::vector<RangeCategory> categories;
  for (int lane = 0; lane < kNumLanes; ++lane)
    for (const Dir dir : {Dir::kFwd, Dir::kBwd}) {
      const auto& colours = static_cast<Lane>(lane) == Lane::kEp ? kEpColours : kColours;
      categories.push_back({fmt::format("{} {}", name_of(static_cast<Lane>(lane)), name_of(dir)),
                            colours[static_cast<std::size_t>(dir)]});
    }
  return categories;
}

int range_category(const Instr& instr) {
  return static_cast<int>(instr.lane) * kNumDirs + static_cast<int>(instr.dir);
}

}  // namespace tandem
