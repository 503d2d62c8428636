// Comm over any Transport: checks the shapes on the host, runs the collective on the stream.
#pragma once

#include <memory>
#include <string>

#include "collectives.h"
#include "tandem/comm/comm.h"

namespace tandem {

class TransportComm : public Comm {
 public:
  TransportComm(std::unique_ptr<Transport> transport, std::string name);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  void all_to_all(Stream& stream, AllToAll plan) override;
  void all_reduce(Stream& stream, View inout, ReduceOp op) override;
  void reduce_scatter(Stream& stream, View in, View out) override;
  void all_gather(Stream& stream, View in, View out) override;
  void send(Stream& stream, View from, int peer) override;
  void recv(Stream& stream, View to, int peer) override;

 private:
  void check_peer(const char* what, int peer) const;

  int rank_, size_;
  std::string name_;
  std::shared_ptr<Collectives> collectives_;  // shared with the work in flight
};

}  // namespace tandem
