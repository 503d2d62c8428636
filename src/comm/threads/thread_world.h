// World of ranks that are threads of this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../abort_state.h"
#include "../transport_world.h"
#include "thread_group.h"

namespace tandem::threads {

// What the ranks share. Any thread.
class Hub {
 public:
  explicit Hub(int ranks);

  [[nodiscard]] AbortState& state() { return abort_; }
  [[nodiscard]] std::shared_ptr<Group> everyone() const { return everyone_; }
  void abort(ExitCode code, const std::string& reason) noexcept;
  // The group that all `members` get when each of them calls with the same `round`.
  std::shared_ptr<Group> join(int round, const std::vector<int>& members);

 private:
  struct Forming {
    std::shared_ptr<Group> group;
    std::size_t joined = 0;
  };
  AbortState abort_;
  std::shared_ptr<Group> everyone_;
  std::mutex mutex_;  // guards the two below
  std::map<std::pair<int, std::vector<int>>, Forming> forming_;
  std::vector<std::weak_ptr<Group>> groups_;
};

class ThreadWorld : public TransportWorld {
 public:
  ThreadWorld(Hub& hub, int rank);
  [[nodiscard]] int local_rank() const override { return rank(); }
  [[nodiscard]] int local_size() const override { return size(); }
  void abort(ExitCode code, const std::string& reason) noexcept override;

 protected:
  std::unique_ptr<Transport> make_transport(const std::vector<int>& members) override;
  AbortState& abort_state() override { return hub_.state(); }

 private:
  Hub& hub_;
  int round_ = 0;  // make_comm calls so far; the same on all ranks
};

}  // namespace tandem::threads
