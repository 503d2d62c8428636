#include "tandem/runtime/timeline.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// Instructions of a lane end in order: the number that have is found by bisection.
template <class Entries>
std::size_t ended(const Entries& entries) {
  const auto first_open = std::partition_point(
      entries.begin(), entries.end(), [](const auto& e) { return e.closed && e.end->reached(); });
  return static_cast<std::size_t>(first_open - entries.begin());
}

}  // namespace

void Timeline::start(const Program& program) {
  const std::lock_guard lock(mutex_);
  program_ = &program;
  host_ = -1;
  ++steps_;
}

std::unique_ptr<Event> Timeline::take_event() {
  if (free_.empty()) return device_.make_event();
  auto event = std::move(free_.back());
  free_.pop_back();
  return event;
}

void Timeline::begin(Stream& stream, Lane lane, std::int32_t instr) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[static_cast<std::size_t>(lane)].emplace_back(
      Entry{instr, take_event(), take_event(), false});
  stream.record(*entry.begin);
}

void Timeline::end(Stream& stream, Lane lane) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<std::size_t>(lane)].back();
  stream.record(*entry.end);
  entry.closed = true;
}

void Timeline::host_at(std::int32_t instr) {
  const std::lock_guard lock(mutex_);
  host_ = instr;
}

void Timeline::host_wait(double begin_us, double end_us, std::int32_t instr) {
  const std::lock_guard lock(mutex_);
  host_waits_.push_back({Lane::kHost, instr, begin_us, end_us});
}

std::vector<TimedInstr> Timeline::harvest() {
  const std::lock_guard lock(mutex_);
  std::vector<TimedInstr> spans = std::move(host_waits_);
  host_waits_.clear();
  host_ = -1;
  // Clocks of devices may count in fp32 from their start; differences within a step stay exact.
  const Event* first = nullptr;
  for (const auto& entries : entries_)
    if (first == nullptr && !entries.empty()) first = entries.front().begin.get();
  const double first_us = first == nullptr ? 0.0 : first->reached_us();
  const auto us = [&](const Event& event) { return first_us + event.us_since(*first); };
  for (int lane = 0; lane < kNumLanes; ++lane) {
    for (Entry& entry : entries_[static_cast<std::size_t>(lane)])
      spans.push_back({static_cast<Lane>(lane), entry.instr, us(*entry.begin), us(*entry.end)});
  }
  for (auto& entries : entries_) {
    for (Entry& entry : entries) {
      free_.push_back(std::move(entry.begin));
      free_.push_back(std::move(entry.end));
    }
    entries.clear();
  }
  return spans;
}

std::string Timeline::where() const {
  const std::lock_guard lock(mutex_);
  if (program_ == nullptr) return "  no step has begun";
  std::string text;
  if (host_ >= 0)
    text += fmt::format("  host: {}\n",
                        to_text(*program_, program_->instrs[static_cast<std::size_t>(host_)]));
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const auto& entries = entries_[static_cast<std::size_t>(lane)];
    const std::size_t done = ended(entries);
    if (done == entries.size()) continue;
    const auto instr = static_cast<std::size_t>(entries[done].instr);
    text += fmt::format("  {}: {}{}\n", name_of(static_cast<Lane>(lane)),
                        to_text(*program_, program_->instrs[instr]),
                        entries[done].begin->reached() ? "" : " (not started)");
  }
  if (text.empty()) return "  between steps";
  text.pop_back();  // the last line's end
  return text;
}

std::int64_t Timeline::progress() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = (steps_ << 32) + host_;
  for (const auto& entries : entries_) sum += static_cast<std::int64_t>(ended(entries));
  return sum;
}

}  // namespace tandem
