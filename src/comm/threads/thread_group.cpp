#include "thread_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::threads {

Group::Group(std::vector<int> members, const AbortState& abort)
    : members_(std::move(members)),
      abort_(abort),
      boxes_(members_.size() * members_.size()),
      seats_(members_.size()) {}

void Group::exchange(int me, std::span<const Outgoing> sends, std::span<const Incoming> recvs) {
  std::vector<Parcel> parcels;
  for (const Outgoing& message : sends) {
    if (message.bytes > 0) parcels.push_back({message.data, message.bytes, message.peer});
  }
  Lock lock(mutex_);
  for (Parcel& parcel : parcels) {
    box(me, parcel.to).push_back(&parcel);
    seat(parcel.to).notify_one();
  }
  try {
    for (const Incoming& message : recvs) {
      if (message.bytes > 0) receive(lock, me, message);
    }
    wait_until_taken(lock, me, parcels);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    withdraw(lock, me, parcels);
    throw;
  }
}

void Group::receive(Lock& lock, int me, const Incoming& message) {
  std::deque<Parcel*>& incoming = box(message.peer, me);
  // hazard: the sender's writes of the bytes before this member's copy of them
  seat(me).wait(lock, [&] { return abort_.is_set() || !incoming.empty(); });
  abort_.check();
  Parcel* parcel = incoming.front();
  incoming.pop_front();
  const std::size_t bytes = parcel->bytes;
  if (bytes == message.bytes) {
    parcel->taken = true;
    lock.unlock();
    std::memcpy(message.data, parcel->data, bytes);
    lock.lock();
  }
  parcel->done = true;
  seat(message.peer).notify_one();
  if (bytes != message.bytes) {
    throw_error(ExitCode::kComm,
                "rank {} expected {} bytes from rank {} and was sent {}: the two sides disagree on "
                "the message",
                members_[static_cast<std::size_t>(me)], message.bytes,
                members_[static_cast<std::size_t>(message.peer)], bytes);
  }
}

void Group::wait_until_taken(Lock& lock, int me, const std::vector<Parcel>& parcels) {
  const auto done = [&] {
    return std::all_of(parcels.begin(), parcels.end(), [](const Parcel& p) { return p.done; });
  };
  // hazard: the receivers' copies before this member writes the sent memory again
  seat(me).wait(lock, [&] { return abort_.is_set() || done(); });
  if (!done()) abort_.check();
}

void Group::withdraw(Lock& lock, int me, std::vector<Parcel>& parcels) {
  for (Parcel& parcel : parcels) {
    if (parcel.taken || parcel.done) continue;
    std::deque<Parcel*>& outgoing = box(me, parcel.to);
    outgoing.erase(std::find(outgoing.begin(), outgoing.end(), &parcel));
    parcel.done = true;
  }
  // hazard: a copy in progress before the caller frees the sent memory
  seat(me).wait(lock, [&] {
    return std::all_of(parcels.begin(), parcels.end(), [](const Parcel& p) { return p.done; });
  });
}

void Group::wake_all() {
  const std::lock_guard lock(mutex_);  // nobody is between looking at the flag and sleeping
  for (std::condition_variable& s : seats_) s.notify_all();
}

}  // namespace tandem::threads
