#include "mail_exchange.h"

#include <algorithm>

#include "../cuda_owners.h"
#include "tandem/base/error.h"

namespace tandem {

void MailExchange::append(Message& message, const View& view, const std::vector<RowBlock>& blocks) {
  for (const RowBlock& block : blocks) {
    if (block.rows == 0) continue;
    const std::size_t bytes = row_bytes(view) * static_cast<std::size_t>(block.rows);
    std::byte* data = row(view, block.begin);
    if (!message.pieces.empty()) {
      Piece& last = message.pieces.back();
      if (last.data + last.bytes == data && last.at + last.bytes == message.bytes) {
        last.bytes += bytes;
        message.bytes += bytes;
        continue;
      }
    }
    message.pieces.push_back({data, message.bytes, bytes});
    message.bytes += bytes;
  }
  message.bytes = staging_size(message.bytes);  // the next part begins aligned
}

std::size_t MailExchange::in_round(const Message& message, std::size_t round) const {
  const std::size_t begin = round * boxes_.box_bytes();
  return message.bytes <= begin ? 0 : std::min(boxes_.box_bytes(), message.bytes - begin);
}

void MailExchange::copies(const Message& message, std::size_t round, std::byte* box, bool into_box,
                          std::vector<CopyRun>& runs) const {
  const std::size_t begin = round * boxes_.box_bytes(), end = begin + boxes_.box_bytes();
  for (const Piece& piece : message.pieces) {
    const std::size_t low = std::max(begin, piece.at);
    const std::size_t high = std::min(end, piece.at + piece.bytes);
    if (low >= high) continue;
    std::byte* rows = piece.data + (low - piece.at);
    std::byte* mail = box + (low - begin);
    runs.push_back({into_box ? rows : mail, into_box ? mail : rows, high - low});
  }
}

void MailExchange::transfer(cudaStream_t stream, std::size_t round, const std::vector<Message>& out,
                            const std::vector<Message>& in) {
  constexpr const char* kWhat = "all_to_all";
  if (padded_)
    return group_.run(kWhat, [&](ncclComm_t comm) {
      return ncclAlltoAll(boxes_.out(0), boxes_.in(0), boxes_.box_bytes(), ncclInt8, comm, stream);
    });
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (int peer = 0; peer < members_; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    sends.push_back({peer, boxes_.out(peer), in_round(out[p], round)});
    recvs.push_back({peer, boxes_.in(peer), in_round(in[p], round)});
  }
  group_.exchange(kWhat, stream, sends, recvs);
}

void MailExchange::run(cudaStream_t stream, const AllToAll& plan) {
  std::vector<Message> out(static_cast<std::size_t>(members_)), in(out.size());
  std::vector<CopyRun> own;
  std::size_t longest = 0;
  for (const AllToAll::Part& part : plan.parts) {
    for (std::size_t p = 0; p < out.size(); ++p) {
      if (static_cast<int>(p) == rank_) {
        add_rows(own, part.send, plan.send[p], part.recv, plan.recv[p]);
        continue;
      }
      append(out[p], part.send, plan.send[p]);
      append(in[p], part.recv, plan.recv[p]);
      longest = std::max({longest, out[p].bytes, in[p].bytes});
    }
  }
  const std::size_t rounds = (longest + boxes_.box_bytes() - 1) / boxes_.box_bytes();
  if (padded_ && rounds > 1)
    throw_error(ExitCode::kComm,
                "a message of {} bytes does not fit into a padded all-to-all of {} bytes a pair: "
                "set train.alltoall=window or plain",
                longest, boxes_.box_bytes());
  copy_runs(own, stream);
  for (std::size_t round = 0; round < (padded_ ? 1 : rounds); ++round) {
    std::vector<CopyRun> mail;
    for (std::size_t p = 0; p < out.size(); ++p)
      copies(out[p], round, boxes_.out(static_cast<int>(p)), true, mail);
    copy_runs(mail, stream);
    transfer(stream, round, out, in);
    mail.clear();
    for (std::size_t p = 0; p < in.size(); ++p)
      copies(in[p], round, boxes_.in(static_cast<int>(p)), false, mail);
    copy_runs(mail, stream);
  }
}

}  // namespace tandem
