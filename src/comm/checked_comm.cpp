#include "checked_comm.h"

#include "row_blocks.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

void check_blocks(const std::string& name, const View& view, const std::vector<RowBlock>& blocks) {
  for (const RowBlock& block : blocks) {
    TANDEM_CHECK(block.rows >= 0, "{}: all_to_all block with a negative number of rows", name);
    TANDEM_CHECK(block.begin >= 0, "{}: all_to_all block begins before its view", name);
    TANDEM_CHECK(block.begin + block.rows <= view.rows, "{}: all_to_all block ends after its view",
                 name);
  }
}

void check_plan(const std::string& name, const AllToAll& plan, int rank, int size) {
  const auto members = static_cast<std::size_t>(size);
  const auto own = static_cast<std::size_t>(rank);
  TANDEM_CHECK(plan.send.size() == members, "{}: one send list per member", name);
  TANDEM_CHECK(plan.recv.size() == members, "{}: one receive list per member", name);
  TANDEM_CHECK(total_rows(plan.send[own]) == total_rows(plan.recv[own]),
               "{}: rows a member sends to itself", name);
  for (const AllToAll::Part& part : plan.parts) {
    TANDEM_CHECK(part.send.dtype == part.recv.dtype, "{}: dtypes of an all_to_all part", name);
    TANDEM_CHECK(part.send.cols == part.recv.cols, "{}: columns of an all_to_all part", name);
    for (std::size_t p = 0; p < members; ++p) {
      check_blocks(name, part.send, plan.send[p]);
      check_blocks(name, part.recv, plan.recv[p]);
    }
  }
}

void check_f32(const std::string& name, const View& view) {
  TANDEM_CHECK(view.dtype == DType::kF32, "{}: reductions take fp32, got {}", name,
               name_of(view.dtype));
}

}  // namespace

void CheckedComm::check_peer(const char* what, int peer) const {
  TANDEM_CHECK(peer >= 0, "{}: {} needs a member of the group", name_, what);
  TANDEM_CHECK(peer < size_, "{}: {} needs a member of the group", name_, what);
  TANDEM_CHECK(peer != rank_, "{}: {} with itself", name_, what);
}

void CheckedComm::all_to_all(Stream& stream, AllToAll plan) {
  check_plan(name_, plan, rank_, size_);
  start_all_to_all(stream, std::move(plan));
}

void CheckedComm::all_reduce(Stream& stream, View inout, ReduceOp op) {
  check_f32(name_, inout);
  start_all_reduce(stream, inout, op);
}

void CheckedComm::reduce_scatter(Stream& stream, View in, View out) {
  check_f32(name_, in);
  check_f32(name_, out);
  TANDEM_CHECK(in.size() == out.size() * size_, "{}: reduce_scatter input holds all parts", name_);
  start_reduce_scatter(stream, in, out);
}

void CheckedComm::all_gather(Stream& stream, View in, View out) {
  TANDEM_CHECK(in.dtype == out.dtype, "{}: dtypes of all_gather", name_);
  TANDEM_CHECK(out.size() == in.size() * size_, "{}: all_gather output holds all parts", name_);
  start_all_gather(stream, in, out);
}

void CheckedComm::send(Stream& stream, View from, int peer) {
  check_peer("send", peer);
  start_send(stream, from, peer);
}

void CheckedComm::recv(Stream& stream, View to, int peer) {
  check_peer("recv", peer);
  start_recv(stream, to, peer);
}

}  // namespace tandem
