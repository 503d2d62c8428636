// Transport over a communicator of its own. Any thread of the process may run it, one at a time.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "../transport.h"
#include "mpi_job.h"

namespace tandem::mpi {

class MpiTransport : public Transport {
 public:
  MpiTransport(std::shared_ptr<Job> job, MPI_Comm comm);  // takes ownership of comm
  ~MpiTransport() override;
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> recvs) override;
  [[nodiscard]] MPI_Comm comm() const { return comm_; }

 private:
  void post_recv(const Incoming& message);
  void post_send(const Outgoing& message);
  void finish();
  void check_sizes() const;
  void drop_requests() noexcept;

  std::shared_ptr<Job> job_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  // The exchange in progress; members only to keep their memory.
  Batch batch_;
  std::vector<int> expected_;  // bytes per receive request, which come first in batch_
};

}  // namespace tandem::mpi
