// cuDNN's graphs of small operations, through its backend interface. Private to ops.
//
// A Graph is filled with tensors and operations and compiled to a Plan, or refused: cuDNN fuses
// only patterns that it knows. Both own every descriptor they made.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tandem::cuda::cudnn {

// Throws Error(kInternal) with cuDNN's own words.
void check(cudnnStatus_t status, const char* call);

// cuDNN does not take this graph. what() says which call failed and why.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Dims = std::array<std::int64_t, 4>;

struct Layout {
  Dims dims, strides;  // in elements

  [[nodiscard]] static Layout packed(const Dims& d) {
    return {d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}};
  }
  // The last two axes swapped; memory is as it was.
  [[nodiscard]] Layout transposed() const {
    Layout t = *this;
    std::swap(t.dims[2], t.dims[3]);
    std::swap(t.strides[2], t.strides[3]);
    return t;
  }
};

// Descriptors of one graph, in the order they were made.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors();
  Descriptors(Descriptors&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  Descriptors& operator=(Descriptors&& other) noexcept {
    std::swap(all_, other.all_);
    return *this;
  }
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);

 private:
  std::vector<cudnnBackendDescriptor_t> all_;
};

// A scalar of a graph. cuDNN reads it through a pointer at every run.
struct Scalar {
  std::int64_t id;
  float value;
};

// The memory of the tensor `id`.
struct Binding {
  std::int64_t id;
  void* data;
};

// An executable graph. Runs of one plan on one stream may follow each other without a wait.
class Plan {
 public:
  Plan(Descriptors descriptors, std::vector<Scalar> scalars, cudnnBackendDescriptor_t plan);
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues on the handle's stream. Every tensor that is not `between` others needs a binding;
  // workspace has workspace_bytes() bytes.
  void run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  Descriptors descriptors_;
  std::vector<Scalar> scalars_;
  cudnnBackendDescriptor_t plan_;
  std::size_t workspace_bytes_ = 0;
};

// Operations return the tensor they write, so that they nest. All arithmetic is fp32.
class Graph {
 public:
  using Tensor = cudnnBackendDescriptor_t;

  // Memory of the caller: 16-byte aligned. Ids are the caller's, below kFirstOwnId.
  Tensor tensor(std::int64_t id, cudnnDataType_t type, const Layout& layout);
  // An intermediate result that need not exist in memory.
  Tensor between(cudnnDataType_t type, const Layout& layout);
  Tensor scalar(float value);

  Tensor matmul(Tensor a, Tensor b, Tensor out);
  Tensor reduce(cudnnReduceTensorOp_t op, Tensor in, Tensor out);
  Tensor reshape(Tensor in, Tensor out);
  Tensor unary(cudnnPointwiseMode_t mode, Tensor in, Tensor out);
  Tensor binary(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor out);
  // out = position along `axis`, for the shape of `like`; out is int32.
  Tensor index(std::int64_t axis, Tensor like, Tensor out);
  // out = a >= b; out is boolean.
  Tensor at_least(Tensor a, Tensor b, Tensor out);
  // out = condition ? a : b.
  Tensor select(Tensor condition, Tensor a, Tensor b, Tensor out);

  // The first engine that cuDNN's heuristics name and that builds. Tens of milliseconds; the first
  // of a kind up to a second. Throws Refusal.
  Plan compile(cudnnHandle_t handle) &&;

 private:
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    Tensor x, b, t, y;  // b, t: null where the mode has fewer inputs
    cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT;
    std::int64_t axis = -1;
  };
  Tensor pointwise(const Pointwise& p);
  Tensor describe(std::int64_t id, cudnnDataType_t type, const Layout& layout, bool is_between,
                  bool by_value);
  std::vector<Tensor> engines(Tensor graph, cudnnBackendHeurMode_t mode);
  Tensor first_plan(Tensor graph, cudnnHandle_t handle);

  static constexpr std::int64_t kFirstOwnId = 1000;
  Descriptors descriptors_;
  std::vector<Scalar> scalars_;
  std::vector<Tensor> operations_;
  std::int64_t next_id_ = kFirstOwnId;
};

}  // namespace tandem::cuda::cudnn
