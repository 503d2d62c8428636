// Owner of one NCCL communicator, made without blocking, so that an abort can end whatever NCCL
// waits for: making it, connecting, kernels on the GPU.
//
// One thread enqueues; the abort and the health check come from any. They meet at a mutex that is
// never held while waiting: NCCL's calls return at once and the result is polled.
#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "../abort_state.h"
#include "../transport.h"
#include "tandem/comm/comm.h"

namespace tandem {

class NcclGroup final : public AbortListener {
 public:
  // Collective over the members of the transport, whose order NCCL's ranks follow; for the device
  // that is current. Blocks until all are here.
  NcclGroup(Transport& members, const std::string& name, const CommOptions& options,
            AbortState& abort);
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // `calls` makes NCCL calls on the communicator, which become one group; the first one that fails
  // is its result. Returns when all of it is on its stream, so that the host's order is the order
  // on the GPU. Throws Error(kComm); Aborted after an abort.
  void run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& calls);
  // All messages as one group on the stream, with the rules of Transport::exchange and the errors
  // of run().
  void exchange(const char* what, cudaStream_t stream, std::span<const Outgoing> sends,
                std::span<const Incoming> recvs);
  // Ends what the communicator waits for, on this rank only. No run() may follow.
  void give_up() noexcept;

  void on_abort() noexcept override;
  void check_health() override;

 private:
  void init(Transport& members, const CommOptions& options);
  void wait_until_done(const char* what);
  void require_alive() const;
  void check(ncclResult_t result, const char* what) const;
  void close(bool gently) noexcept;
  bool finalize() noexcept;

  const std::string name_;  // NCCL keeps a pointer to it
  AbortState& abort_;
  std::mutex mutex_;  // guards comm_ and all NCCL calls on it
  ncclComm_t comm_ = nullptr;
  std::thread aborter_;  // started by the first abort
};

}  // namespace tandem
