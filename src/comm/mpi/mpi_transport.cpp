#include "mpi_transport.h"

#include "../message_parts.h"

namespace tandem::mpi {
namespace {

constexpr int kTag = 1;  // the communicator is private, and its messages arrive in order

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<Job> job, MPI_Comm comm)
    : job_(std::move(job)), comm_(comm) {
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

MpiTransport::~MpiTransport() {
  if (!job_->finalized.load() && !job_->abort.is_set()) MPI_Comm_free(&comm_);
}

void MpiTransport::exchange(std::span<const Outgoing> sends, std::span<const Incoming> recvs) {
  job_->abort.check();
  batch_.requests.clear();
  batch_.code = MPI_SUCCESS;
  expected_.clear();
  try {
    for (const Incoming& message : recvs) post_recv(message);
    for (const Outgoing& message : sends) post_send(message);
    finish();
    check_sizes();
  } catch (...) {
    drop_requests();
    throw;
  }
}

void MpiTransport::post_recv(const Incoming& message) {
  for_each_part(message.bytes, kLargestPart, [&](std::size_t offset, std::size_t bytes) {
    expected_.push_back(static_cast<int>(bytes));
    batch_.requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(message.data + offset, static_cast<int>(bytes), MPI_BYTE, message.peer, kTag,
                    comm_, &batch_.requests.back()),
          "MPI_Irecv");
  });
}

void MpiTransport::post_send(const Outgoing& message) {
  for_each_part(message.bytes, kLargestPart, [&](std::size_t offset, std::size_t bytes) {
    batch_.requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Isend(message.data + offset, static_cast<int>(bytes), MPI_BYTE, message.peer, kTag,
                    comm_, &batch_.requests.back()),
          "MPI_Isend");
  });
}

void MpiTransport::finish() {
  job_->poller.wait(batch_);
  if (batch_.code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : batch_.statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "a message");
    }
  }
  check(batch_.code, "MPI_Testall");
}

void MpiTransport::check_sizes() const {
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    int bytes = 0;
    check(MPI_Get_count(&batch_.statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes == expected_[i]) continue;
    throw_error(
        ExitCode::kComm,
        "member {} expected {} bytes from member {} and was sent {}: the two sides disagree "
        "on the message",
        rank_, expected_[i], batch_.statuses[i].MPI_SOURCE, bytes);
  }
}

// After an error the process is on its way to MPI_Abort. Receives are called back so that nothing
// arrives in memory that is being freed; sends cannot be, and only read it.
void MpiTransport::drop_requests() noexcept {
  for (std::size_t i = 0; i < batch_.requests.size(); ++i) {
    if (batch_.requests[i] == MPI_REQUEST_NULL) continue;
    if (i < expected_.size()) MPI_Cancel(&batch_.requests[i]);
    MPI_Request_free(&batch_.requests[i]);
  }
  batch_.requests.clear();
}

}  // namespace tandem::mpi
