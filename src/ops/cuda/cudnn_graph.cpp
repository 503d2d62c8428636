#include "cudnn_graph.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem::cuda::cudnn {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

std::string explain(cudnnStatus_t status, const char* call) {
  std::array<char, 1024> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  return fmt::format("{} failed: {} ({})", call, cudnnGetErrorString(status), detail.data());
}

// While a graph is described and compiled, every failure means that cuDNN does not take it.
void demand(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw Refusal(explain(status, call));
}

template <class T>
void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::span<const T> values) {
  demand(cudnnBackendSetAttribute(d, name, type, static_cast<std::int64_t>(values.size()),
                                  values.data()),
         "cudnnBackendSetAttribute");
}
template <class T>
void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const T& value) {
  set(d, name, type, std::span<const T>(&value, 1));
}
void set(Descriptor d, cudnnBackendAttributeName_t name, Descriptor value) {
  set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value);
}

Descriptor finalize(Descriptor d) {
  demand(cudnnBackendFinalize(d), "cudnnBackendFinalize");
  return d;
}

}  // namespace

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  throw_error(ExitCode::kInternal, "{}", explain(status, call));
}

Descriptors::~Descriptors() {
  for (auto it = all_.rbegin(); it != all_.rend(); ++it) cudnnBackendDestroyDescriptor(*it);
}

Descriptor Descriptors::make(cudnnBackendDescriptorType_t type) {
  Descriptor d = nullptr;
  all_.reserve(all_.size() + 1);  // so that nothing can throw once the descriptor exists
  demand(cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
  all_.push_back(d);
  return d;
}

Plan::Plan(Descriptors descriptors, std::vector<Scalar> scalars, Descriptor plan)
    : descriptors_(std::move(descriptors)), scalars_(std::move(scalars)), plan_(plan) {
  std::int64_t count = 0, bytes = 0;
  demand(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                  1, &count, &bytes),
         "the workspace size of a plan");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

void Plan::run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> data;
  for (const Binding& b : bindings) {
    ids.push_back(b.id);
    data.push_back(b.data);
  }
  for (const Scalar& s : scalars_) {
    ids.push_back(s.id);
    data.push_back(const_cast<float*>(&s.value));  // the interface has no pointer to const
  }
  Descriptors own;
  try {
    const Descriptor pack = own.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
        std::span<const std::int64_t>(ids));
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
        std::span<void* const>(data));
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    finalize(pack);
    check(cudnnBackendExecute(handle, plan_, pack), "cudnnBackendExecute");
  } catch (const Refusal& refusal) {  // of a graph it has taken: not to be expected
    throw_error(ExitCode::kInternal, "running a cuDNN graph: {}", refusal.what());
  }
}

Graph::Tensor Graph::describe(std::int64_t id, cudnnDataType_t type, const Layout& layout,
                              bool is_between, bool by_value) {
  const Tensor t = descriptors_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t alignment = 16;
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(layout.dims));
  set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(layout.strides));
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_between);
  if (by_value) set(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  return finalize(t);
}

Graph::Tensor Graph::tensor(std::int64_t id, cudnnDataType_t type, const Layout& layout) {
  TANDEM_CHECK(id < kFirstOwnId, "cuDNN graph: ids from here on are the graph's own");
  return describe(id, type, layout, false, false);
}

Graph::Tensor Graph::between(cudnnDataType_t type, const Layout& layout) {
  return describe(next_id_++, type, layout, true, false);
}

Graph::Tensor Graph::scalar(float value) {
  scalars_.push_back({next_id_++, value});
  return describe(scalars_.back().id, CUDNN_DATA_FLOAT, Layout::packed({1, 1, 1, 1}), false, true);
}

Graph::Tensor Graph::matmul(Tensor a, Tensor b, Tensor out) {
  const Tensor how = descriptors_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(how);
  const Tensor op = descriptors_.make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  operations_.push_back(finalize(op));
  return out;
}

Graph::Tensor Graph::reduce(cudnnReduceTensorOp_t mode, Tensor in, Tensor out) {
  const Tensor how = descriptors_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
  finalize(how);
  const Tensor op = descriptors_.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, in);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  operations_.push_back(finalize(op));
  return out;
}

Graph::Tensor Graph::reshape(Tensor in, Tensor out) {
  const Tensor op = descriptors_.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, in);
  set(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
  operations_.push_back(finalize(op));
  return out;
}

Graph::Tensor Graph::pointwise(const Pointwise& p) {
  const Tensor how = descriptors_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, p.mode);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p.arithmetic);
  if (p.axis >= 0) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, p.axis);
  finalize(how);
  const Tensor op = descriptors_.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
  if (p.b != nullptr) set(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
  if (p.t != nullptr) set(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
  operations_.push_back(finalize(op));
  return p.y;
}

Graph::Tensor Graph::unary(cudnnPointwiseMode_t mode, Tensor in, Tensor out) {
  return pointwise({.mode = mode, .x = in, .b = nullptr, .t = nullptr, .y = out});
}

Graph::Tensor Graph::binary(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor out) {
  return pointwise({.mode = mode, .x = a, .b = b, .t = nullptr, .y = out});
}

Graph::Tensor Graph::index(std::int64_t axis, Tensor like, Tensor out) {
  return pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX,
                    .x = like,
                    .b = nullptr,
                    .t = nullptr,
                    .y = out,
                    .axis = axis});
}

Graph::Tensor Graph::at_least(Tensor a, Tensor b, Tensor out) {
  return pointwise({.mode = CUDNN_POINTWISE_CMP_GE,
                    .x = a,
                    .b = b,
                    .t = nullptr,
                    .y = out,
                    .arithmetic = CUDNN_DATA_BOOLEAN});
}

Graph::Tensor Graph::select(Tensor condition, Tensor a, Tensor b, Tensor out) {
  return pointwise(
      {.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = a, .b = b, .t = condition, .y = out});
}

std::vector<Graph::Tensor> Graph::engines(Tensor graph, cudnnBackendHeurMode_t mode) {
  const Tensor heuristics = descriptors_.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  finalize(heuristics);
  std::int64_t count = 0;
  const auto results = [&](std::int64_t capacity, Tensor* to) {
    demand(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, capacity, &count, to),
           "the engines for a graph");
  };
  results(0, nullptr);
  std::vector<Tensor> found(static_cast<std::size_t>(count));
  for (Tensor& t : found) t = descriptors_.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (count > 0) results(count, found.data());
  found.resize(static_cast<std::size_t>(count));
  return found;
}

Graph::Tensor Graph::first_plan(Tensor graph, cudnnHandle_t handle) {
  std::string why = "no engine";
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      for (const Tensor engine : engines(graph, mode)) {
        const Tensor plan = descriptors_.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
        const cudnnStatus_t status = cudnnBackendFinalize(plan);
        if (status == CUDNN_STATUS_SUCCESS) return plan;
        why = explain(status, "an execution plan");
      }
    } catch (const Refusal& refusal) {
      why = refusal.what();
    }
  }
  throw Refusal(why);
}

Plan Graph::compile(cudnnHandle_t handle) && {
  const Tensor graph = descriptors_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      std::span<const Tensor>(operations_));
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  finalize(graph);
  const Tensor plan = first_plan(graph, handle);
  return {std::move(descriptors_), std::move(scalars_), plan};
}

}  // namespace tandem::cuda::cudnn
