// Comm of GPU memory over any Transport: copies to pinned memory, the collective of host memory on
// a thread of this communicator, copies back. Ranks may share a GPU; reductions have the bits of
// the CPU.
//
// hazard of the pinned memory: every call uses it from the start. The call before is done with it,
// because in the one stream of a communicator a call's first copy follows the gate of the call
// before and the copies behind that gate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../checked_comm.h"
#include "../collectives.h"
#include "../cuda_owners.h"
#include "tandem/device/cuda_gate_thread.h"

namespace tandem {

class StagedComm : public CheckedComm {
 public:
  StagedComm(std::unique_ptr<Transport> transport, std::string name);
  // Waits for all calls; only an abort of the world ends those that wait for other ranks.
  ~StagedComm() override;

 private:
  void start_all_to_all(Stream& stream, AllToAll plan) override;
  void start_all_reduce(Stream& stream, View inout, ReduceOp op) override;
  void start_reduce_scatter(Stream& stream, View in, View out) override;
  void start_all_gather(Stream& stream, View in, View out) override;
  void start_send(Stream& stream, View from, int peer) override;
  void start_recv(Stream& stream, View to, int peer) override;

  using Blocks = std::vector<std::vector<RowBlock>>;
  // One block for each other member, one behind the other; nothing for this member itself.
  [[nodiscard]] Blocks packed(const Blocks& blocks) const;
  [[nodiscard]] AllToAll on_host(const AllToAll& plan);

  CommStream stream_;
  Collectives collectives_;  // run by the thread only
  StagingMemory<PinnedSpace> pinned_;
  CudaMark done_;  // behind the last call
  GateThread thread_;
};

}  // namespace tandem
