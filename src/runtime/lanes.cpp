#include "tandem/runtime/lanes.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

// Transfers go first: a late send or all-to-all stalls other ranks, late compute only this one.
constexpr int kTransferPriority = 1;
constexpr int kComputePriority = 0;

bool pipeline_lane(Lane lane) {
  return lane >= Lane::kSendFwd && lane <= Lane::kRecvBwd;
}

}  // namespace

Lanes::Lanes(Device& device, int pp) {
  for (auto& event : events_) event = device.make_event();
  for (int i = 0; i < kNumLanes; ++i) {
    const auto lane = static_cast<Lane>(i);
    if (lane == Lane::kHost || (pipeline_lane(lane) && pp == 1)) continue;
    const int priority = lane == Lane::kCompute ? kComputePriority : kTransferPriority;
    streams_[static_cast<std::size_t>(i)] =
        device.make_stream(std::string(name_of(lane)), priority);
  }
}

Stream& Lanes::stream(Lane lane) const {
  const auto& stream = streams_[static_cast<std::size_t>(lane)];
  TANDEM_CHECK(stream != nullptr, "lane {} does not exist on this rank", name_of(lane));
  return *stream;
}

Event& Lanes::event(EventId id) const {
  return *events_[static_cast<std::size_t>(id.dir) * kNumLanes + static_cast<std::size_t>(id.lane)];
}

void Lanes::sync_all() const {
  for (const auto& stream : streams_)
    // hazard: everything the step enqueued before anything the host reads or frees afterwards
    if (stream) stream->sync();
}

}  // namespace tandem
