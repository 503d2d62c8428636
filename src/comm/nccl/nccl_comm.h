// Comm of GPU memory by NCCL.
//
// Reductions add in an order of NCCL's choice, the same in every run on the same machines, but not
// the order of the other kinds, and not the same for every element; a maximum ignores NaN.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../checked_comm.h"
#include "../cuda_owners.h"
#include "mail_exchange.h"
#include "nccl_group.h"

namespace tandem {

class NcclComm : public CheckedComm {
 public:
  NcclComm(Transport& transport, std::string name, const CommOptions& options, AbortState& abort);
  // Waits for the transfers under way, unless an exception is on its way: peers may never answer.
  ~NcclComm() override;

 private:
  void connect();
  void start_all_to_all(Stream& stream, AllToAll plan) override;
  void start_all_reduce(Stream& stream, View inout, ReduceOp op) override;
  void start_reduce_scatter(Stream& stream, View in, View out) override;
  void start_all_gather(Stream& stream, View in, View out) override;
  void start_send(Stream& stream, View from, int peer) override;
  void start_recv(Stream& stream, View to, int peer) override;

  std::byte* room_for(const AllToAll& plan);  // null where no rows are scattered

  const int exceptions_;  // on their way when this was made
  CommStream stream_;
  StagingMemory<DeviceSpace>
      staging_;    // hazard: every call uses it from the start, in stream order
  CudaMark done_;  // behind the last call
  NcclGroup group_;
  std::unique_ptr<MailExchange> mail_;  // null: the plain way
};

}  // namespace tandem
