// The meeting place of one group of ranks that are threads of this process.
//
// A sender leaves a parcel (a pointer to its bytes) in the box of (sender, receiver) and waits; the
// receiver copies straight from the sender's memory. So every message is a rendezvous: a schedule
// that only works because messages are buffered hangs here, where tests can see it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../abort_state.h"
#include "../transport.h"

namespace tandem::threads {

class Group {
 public:
  Group(std::vector<int> members, const AbortState& abort);

  // Blocking; one thread per member at a time.
  void exchange(int me, std::span<const Outgoing> sends, std::span<const Incoming> recvs);
  void wake_all();  // after the abort flag was set
  [[nodiscard]] const std::vector<int>& members() const { return members_; }

 private:
  struct Parcel {
    const std::byte* data;
    std::size_t bytes;
    int to;
    bool taken = false, done = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::deque<Parcel*>& box(int from, int to) {
    return boxes_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }
  std::condition_variable& seat(int member) { return seats_[static_cast<std::size_t>(member)]; }
  void receive(Lock& lock, int me, const Incoming& message);
  void wait_until_taken(Lock& lock, int me, const std::vector<Parcel>& parcels);
  void withdraw(Lock& lock, int me, std::vector<Parcel>& parcels);

  const std::vector<int> members_;  // ranks of the world
  const AbortState& abort_;
  std::mutex mutex_;  // guards boxes_ and every parcel's flags
  std::vector<std::deque<Parcel*>> boxes_;
  std::vector<std::condition_variable> seats_;  // what member i waits on
};

// One member's end of a Group.
class GroupTransport : public Transport {
 public:
  GroupTransport(std::shared_ptr<Group> group, int me) : group_(std::move(group)), me_(me) {}
  [[nodiscard]] int rank() const override { return me_; }
  [[nodiscard]] int size() const override { return static_cast<int>(group_->members().size()); }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> recvs) override {
    group_->exchange(me_, sends, recvs);
  }

 private:
  std::shared_ptr<Group> group_;
  int me_;
};

}  // namespace tandem::threads
