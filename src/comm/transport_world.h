// World over any Transport: the host-side calls are small collectives on a transport of their own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abort_state.h"
#include "collectives.h"
#include "tandem/comm/world.h"

namespace tandem {

class TransportWorld : public World {
 public:
  [[nodiscard]] int rank() const override { return host_.transport().rank(); }
  [[nodiscard]] int size() const override { return host_.transport().size(); }
  std::unique_ptr<Comm> make_comm(const std::vector<int>& members, const std::string& name,
                                  const CommOptions& options) final;
  void barrier() final;
  double sum(double value) final;
  double max(double value) final;
  std::string broadcast(const std::string& bytes, int root) final;
  std::vector<std::string> gather(const std::string& bytes) final;
  void check_health() final { abort_state().check_health(); }

 protected:
  explicit TransportWorld(std::unique_ptr<Transport> host) : host_(std::move(host)) {}

  // Called by all ranks in the same order, after `members` were agreed on.
  virtual std::unique_ptr<Transport> make_transport(const std::vector<int>& members) = 0;
  virtual AbortState& abort_state() = 0;  // outlives the communicators
  // For backends whose transports must go before the library: no host-side call may follow.
  void close_host() { host_ = Collectives(nullptr); }

 private:
  std::vector<double> gather_numbers(double value);

  mutable Collectives host_;
};

}  // namespace tandem
