// The streams and events of one rank: a stream per lane the programs use, an event per direction
// and lane. Created once, used by every step.
#pragma once

#include <array>
#include <memory>

#include "tandem/device/device.h"
#include "tandem/model/node.h"
#include "tandem/schedule/program.h"

namespace tandem {

class Lanes {
 public:
  // Streams for compute, ep and dp, and for the four pipeline lanes if pp > 1.
  Lanes(Device& device, int pp);

  [[nodiscard]] Stream& stream(Lane lane) const;
  [[nodiscard]] Event& event(EventId id) const;
  void sync_all() const;  // blocks until every lane is empty; throws the first poison

 private:
  std::array<std::unique_ptr<Event>, 2 * kNumLanes> events_;
  std::array<std::unique_ptr<Stream>, kNumLanes> streams_;  // after the events: they use them
};

}  // namespace tandem
