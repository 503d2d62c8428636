// What one rank keeps of one bucket: its slice of gradients, master, m, v and updated parameters,
// cut into pieces of single parameters. Enqueues only; one host thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/comm/comm.h"
#include "tandem/nn/params.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

// The part of one parameter that lies in this rank's slice; begin counts from the slice's start.
struct Piece {
  std::int64_t begin, count;
  bool decay;
  bool counted;  // in the gradient norm: false for the second copy of a tied embedding
};

class BucketState {
 public:
  // Allocates. `comm` may be nullptr for a bucket nobody shares; then the slice is the bucket
  // itself.
  BucketState(Device& device, const Params& params, std::size_t bucket, Comm* comm, bool tied);
  // Before anything else: master from the parameters, m and v zero. Not part of the constructor:
  // an allocation that fails must not free memory that a stream is still writing.
  void initialise(Device& device, Stream& stream);

  [[nodiscard]] int chunk() const { return chunk_; }
  [[nodiscard]] ParamGroup group() const { return group_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] const OptimizerShard& shard() const { return shard_; }

  void reduce_scatter(Stream& stream);
  // Squares of the counted pieces into partials[i...], one f32 each. Returns how many were written.
  std::int64_t square_sums(Stream& stream, View partials) const;
  // grad_scale: f32 [1], device.
  void update(Stream& stream, const OptimizerConfig& config, View grad_scale, double lr,
              std::int64_t step) const;
  void publish(Device& device, Stream& stream);  // master -> parameter slice
  void all_gather(Stream& stream);

 private:
  [[nodiscard]] bool shared() const { return comm_ != nullptr && comm_->size() > 1; }
  void cut_pieces(const ParamTable& table, bool tied);

  Comm* comm_;
  int chunk_;
  ParamGroup group_;
  View all_grads_, all_values_;  // the whole bucket
  View grads_, values_;          // this rank's slice
  Buffer state_, own_grads_, own_values_;
  OptimizerShard shard_{};
  std::vector<Piece> pieces_;
};

// Elements [begin, begin + count) of a flat view.
View flat(View view, std::int64_t begin, std::int64_t count);

// to = from, converted where the storage dtypes differ.
void convert(Device& device, Stream& stream, View from, View to);

}  // namespace tandem
