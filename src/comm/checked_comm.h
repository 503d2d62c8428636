// Comm of one group by name: checks the arguments on the host, then hands them to an
// implementation.
#pragma once

#include <string>
#include <utility>

#include "tandem/comm/comm.h"

namespace tandem {

class CheckedComm : public Comm {
 public:
  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return size_; }
  [[nodiscard]] const std::string& name() const final { return name_; }
  void all_to_all(Stream& stream, AllToAll plan) final;
  void all_reduce(Stream& stream, View inout, ReduceOp op) final;
  void reduce_scatter(Stream& stream, View in, View out) final;
  void all_gather(Stream& stream, View in, View out) final;
  void send(Stream& stream, View from, int peer) final;
  void recv(Stream& stream, View to, int peer) final;

 protected:
  CheckedComm(int rank, int size, std::string name)
      : rank_(rank), size_(size), name_(std::move(name)) {}

 private:
  virtual void start_all_to_all(Stream& stream, AllToAll plan) = 0;
  virtual void start_all_reduce(Stream& stream, View inout, ReduceOp op) = 0;
  virtual void start_reduce_scatter(Stream& stream, View in, View out) = 0;
  virtual void start_all_gather(Stream& stream, View in, View out) = 0;
  virtual void start_send(Stream& stream, View from, int peer) = 0;
  virtual void start_recv(Stream& stream, View to, int peer) = 0;
  void check_peer(const char* what, int peer) const;

  const int rank_, size_;
  const std::string name_;
};

}  // namespace tandem
