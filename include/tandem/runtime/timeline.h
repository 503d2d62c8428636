// Timeline: when each instruction began and ended on its lane, and, at any moment and from any
// thread, where every lane stands (the watchdog asks).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/device/device.h"
#include "tandem/model/node.h"
#include "tandem/schedule/program.h"

namespace tandem {

struct TimedInstr {
  Lane lane;
  std::int32_t instr;
  double begin_us, end_us;
};

class Timeline {
 public:
  explicit Timeline(Device& device) : device_(device) {}

  void start(const Program& program);  // a new step; the last one was harvested
  void begin(Stream& stream, Lane lane, std::int32_t instr);
  void end(Stream& stream, Lane lane);
  void host_at(std::int32_t instr);  // the host is enqueuing this one
  void host_wait(double begin_us, double end_us, std::int32_t instr);

  // After the lanes are idle: all spans of the step, by lane in order; the events are used again.
  std::vector<TimedInstr> harvest();

  // One line per lane: the first instruction that has not ended. Any thread.
  [[nodiscard]] std::string where() const;
  // Grows whenever anything moves; equal values some time apart mean a stall. Any thread.
  [[nodiscard]] std::int64_t progress() const;

 private:
  struct Entry {
    std::int32_t instr;
    std::unique_ptr<Event> begin, end;
    bool closed = false;
  };
  std::unique_ptr<Event> take_event();

  Device& device_;
  mutable std::mutex mutex_;  // guards everything below
  const Program* program_ = nullptr;
  std::int32_t host_ = -1;
  std::int64_t steps_ = 0;
  std::array<std::vector<Entry>, kNumLanes> entries_;
  std::vector<TimedInstr> host_waits_;
  std::vector<std::unique_ptr<Event>> free_;
};

}  // namespace tandem
