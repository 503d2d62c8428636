// The variable all-to-all through mailboxes. What a pair exchanges is one message: the rows of all
// parts behind one another. Both sides know its length, so they agree, without asking, on how many
// rounds of boxes it takes; usually one.
#pragma once

#include <vector>

#include "copy_runs.h"
#include "mailboxes.h"
#include "tandem/comm/comm.h"

namespace tandem {

class MailExchange {
 public:
  // `padded`: boxes travel whole, by ncclAlltoAll; a message must then fit in one.
  MailExchange(NcclGroup& group, int rank, int members, std::size_t box_bytes, bool padded)
      : group_(group),
        rank_(rank),
        members_(members),
        padded_(padded),
        boxes_(group, members, box_bytes) {}

  // Asynchronous on the stream, which is always the same. Error(kComm) where a padded message does
  // not fit.
  void run(cudaStream_t stream, const AllToAll& plan);

 private:
  // Consecutive bytes of a view and where they lie in the message.
  struct Piece {
    std::byte* data;
    std::size_t at, bytes;
  };
  struct Message {
    std::vector<Piece> pieces;
    std::size_t bytes = 0;
  };
  static void append(Message& message, const View& view, const std::vector<RowBlock>& blocks);
  [[nodiscard]] std::size_t in_round(const Message& message, std::size_t round) const;
  void copies(const Message& message, std::size_t round, std::byte* box, bool into_box,
              std::vector<CopyRun>& runs) const;
  void transfer(cudaStream_t stream, std::size_t round, const std::vector<Message>& out,
                const std::vector<Message>& in);

  NcclGroup& group_;
  const int rank_, members_;
  const bool padded_;
  Mailboxes boxes_;  // hazard: every call uses them from the start, in stream order
};

}  // namespace tandem
