#include "thread_world.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "tandem/base/stderr_is_read.h"
#include "tandem/device/start_thread.h"
#include "tandem/device/thread_name.h"

namespace tandem {
namespace threads {
namespace {

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks;
  for (int r = 0; r < count; ++r) ranks.push_back(r);
  return ranks;
}

}  // namespace

Hub::Hub(int ranks) : everyone_(std::make_shared<Group>(first_ranks(ranks), abort_)) {}

void Hub::abort(ExitCode code, const std::string& reason) noexcept {
  if (!abort_.set(code, reason)) return;
  everyone_->wake_all();
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Group>& weak : groups_) {
    if (const std::shared_ptr<Group> group = weak.lock()) group->wake_all();
  }
}

std::shared_ptr<Group> Hub::join(int round, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  const auto key = std::make_pair(round, members);
  Forming& forming = forming_[key];
  if (forming.group == nullptr) {
    forming.group = std::make_shared<Group>(members, abort_);
    groups_.push_back(forming.group);
  }
  std::shared_ptr<Group> group = forming.group;
  if (++forming.joined == members.size()) forming_.erase(key);
  return group;
}

ThreadWorld::ThreadWorld(Hub& hub, int rank)
    : TransportWorld(std::make_unique<GroupTransport>(hub.everyone(), rank)), hub_(hub) {}

void ThreadWorld::abort(ExitCode code, const std::string& reason) noexcept {
  try {
    hub_.abort(code, fmt::format("rank {}: {}", rank(), reason));
  } catch (...) {  // no memory to name the rank
    hub_.abort(code, reason);
  }
}

std::unique_ptr<Transport> ThreadWorld::make_transport(const std::vector<int>& members) {
  const auto place = std::find(members.begin(), members.end(), rank());
  return std::make_unique<GroupTransport>(hub_.join(round_++, members),
                                          static_cast<int>(place - members.begin()));
}

namespace {

// How a rank's body ended.
struct Ending {
  std::exception_ptr error;
  bool consequence = false;  // it only ended because another rank aborted
};

Ending run_rank(Hub& hub, int rank, const std::function<void(World&)>& body) {
  name_this_thread(fmt::format("rank-{}", rank));
  ThreadWorld world(hub, rank);
  try {
    abort_on_error(world, [&] { body(world); });
    return {};
  } catch (const Aborted&) {
    return {std::current_exception(), true};
  } catch (...) {
    return {std::current_exception()};
  }
}

// Returns when all ranks have ended. After an abort they have a while for it; then the process ends:
// a rank may be stuck where no abort reaches it.
void await_end(AbortState& abort, const std::atomic<int>& ended, int ranks) {
  constexpr std::chrono::milliseconds kPeriod{2};
  constexpr std::chrono::seconds kGrace{30};
  auto aborted = std::chrono::steady_clock::time_point::max();
  while (ended.load() < ranks) {
    std::this_thread::sleep_for(kPeriod);
    const auto now = std::chrono::steady_clock::now();
    if (!abort.is_set()) continue;
    aborted = std::min(aborted, now);
    if (now - aborted < kGrace) continue;
    if (stderr_is_read())
      std::fprintf(stderr, "%d of %d ranks did not end by themselves after the abort\n",
                   ranks - ended.load(), ranks);
    // No flush: the log's thread may hold the lock of a standard output that nobody reads.
    std::_Exit(static_cast<int>(abort.code()));
  }
}

}  // namespace
}  // namespace threads

void run_as_threads(int ranks, const std::function<void(World&)>& body) {
  TANDEM_CHECK(ranks >= 1, "ranks that run as threads");
  threads::Hub hub(ranks);
  std::vector<threads::Ending> endings(static_cast<std::size_t>(ranks));
  std::vector<std::thread> runners;
  std::atomic<int> ended{0};
  try {
    for (int r = 0; r < ranks; ++r) {
      runners.push_back(start_thread(
          fmt::format("rank {} of {}", r, ranks),
          "give fewer --ranks, or raise the limit of threads (ulimit -u)", [&, r] {
            endings[static_cast<std::size_t>(r)] = threads::run_rank(hub, r, body);
            ++ended;
          }));
    }
  } catch (const Error& error) {  // those that run would wait for the others
    hub.abort(error.code(), error.what());
    endings[runners.size()] = {std::current_exception()};
  }
  threads::await_end(hub.state(), ended, static_cast<int>(runners.size()));
  // hazard: the ranks' writes of endings and of all that body captured, before the caller's reads
  for (std::thread& runner : runners) runner.join();

  for (const threads::Ending& ending : endings) {
    if (ending.error && !ending.consequence) std::rethrow_exception(ending.error);
  }
  for (const threads::Ending& ending : endings) {
    if (ending.error) std::rethrow_exception(ending.error);
  }
}

}  // namespace tandem
