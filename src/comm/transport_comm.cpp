#include "transport_comm.h"

#include <utility>

namespace tandem {

TransportComm::TransportComm(std::unique_ptr<Transport> transport, std::string name)
    : CheckedComm(transport->rank(), transport->size(), std::move(name)),
      collectives_(std::make_shared<Collectives>(std::move(transport))) {}

void TransportComm::start_all_to_all(Stream& stream, AllToAll plan) {
  stream.call([run = collectives_, plan = std::move(plan)] { run->all_to_all(plan); });
}

void TransportComm::start_all_reduce(Stream& stream, View inout, ReduceOp op) {
  stream.call(
      [run = collectives_, inout, op] { run->all_reduce(inout.as<float>(), inout.size(), op); });
}

void TransportComm::start_reduce_scatter(Stream& stream, View in, View out) {
  stream.call([run = collectives_, in, out] {
    run->reduce_scatter(in.as<float>(), out.as<float>(), out.size());
  });
}

void TransportComm::start_all_gather(Stream& stream, View in, View out) {
  stream.call([run = collectives_, in, out] {
    run->all_gather(in.as<std::byte>(), out.as<std::byte>(), in.bytes());
  });
}

void TransportComm::start_send(Stream& stream, View from, int peer) {
  stream.call(
      [run = collectives_, from, peer] { run->send(from.as<std::byte>(), from.bytes(), peer); });
}

void TransportComm::start_recv(Stream& stream, View to, int peer) {
  stream.call([run = collectives_, to, peer] { run->recv(to.as<std::byte>(), to.bytes(), peer); });
}

}  // namespace tandem
