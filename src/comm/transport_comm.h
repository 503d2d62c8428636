// Comm of host memory over any Transport: runs the collective on the stream.
#pragma once

#include <memory>
#include <string>

#include "checked_comm.h"
#include "collectives.h"

namespace tandem {

class TransportComm : public CheckedComm {
 public:
  TransportComm(std::unique_ptr<Transport> transport, std::string name);

 private:
  void start_all_to_all(Stream& stream, AllToAll plan) override;
  void start_all_reduce(Stream& stream, View inout, ReduceOp op) override;
  void start_reduce_scatter(Stream& stream, View in, View out) override;
  void start_all_gather(Stream& stream, View in, View out) override;
  void start_send(Stream& stream, View from, int peer) override;
  void start_recv(Stream& stream, View to, int peer) override;

  std::shared_ptr<Collectives> collectives_;  // shared with the work in flight
};

}  // namespace tandem
