// Comm: one communicator of one group, used from exactly one lane, in the same order on all ranks.
// Every call is asynchronous on the stream it is given; buffers must stay valid until the stream
// has passed. Reductions add in group-rank order (0, 1, ...), so results are the same on every
// rank, for every backend and in every run; only NCCL has an order of its own. Every member calls,
// also with zero rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/device/device.h"

namespace tandem {

// What carries the bytes of a communicator, and where its buffers are.
enum class CommKind {
  kHost,    // host memory, over MPI or between threads
  kStaged,  // GPU memory, through pinned host memory and the same way; ranks may share a GPU
  kNccl,    // GPU memory, by NCCL; every rank has a GPU of its own
};

// How NCCL carries an all-to-all.
enum class AllToAllPath {
  kPlain,         // grouped sends and receives between the buffers themselves
  kWindow,        // through memory that NCCL knows in advance: symmetric windows
  kPadded,        // ncclAlltoAll on windows, as much for every pair: for comparison
  kPaddedCopies,  // the same by the GPU's copy engines where it has some: for comparison
};
std::string_view name_of(AllToAllPath path);  // "plain", ...

struct CommOptions {
  CommKind kind = CommKind::kHost;
  int min_ctas = 0, max_ctas = 0;  // thread blocks NCCL's kernels may take; 0 = its own choice
  AllToAllPath path = AllToAllPath::kPlain;
  std::size_t box_bytes = 0;  // window and padded: what a pair exchanges at a time
};

struct RowBlock {
  std::int64_t begin = 0, rows = 0;  // rows of a View
};

// Variable all-to-all of rows. send[p] lists the row blocks that go to member p, recv[p] where
// those of member p are put; both sides' rows agree pairwise, block boundaries need not. Several
// parts (token rows and their weights) travel with the same row structure.
struct AllToAll {
  struct Part {
    View send, recv;
  };
  std::vector<Part> parts;
  std::vector<std::vector<RowBlock>> send, recv;  // [members]
};

enum class ReduceOp { kSum, kMax };

class Comm {
 public:
  virtual ~Comm() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;  // "ep@rank3: ranks 2,3"

  virtual void all_to_all(Stream& stream, AllToAll plan) = 0;
  virtual void all_reduce(Stream& stream, View inout, ReduceOp op) = 0;  // f32 only
  virtual void reduce_scatter(Stream& stream, View in, View out) = 0;    // f32, in = size() * out
  virtual void all_gather(Stream& stream, View in, View out) = 0;        // any dtype
  virtual void send(Stream& stream, View from, int peer) = 0;
  virtual void recv(Stream& stream, View to, int peer) = 0;
};

}  // namespace tandem
