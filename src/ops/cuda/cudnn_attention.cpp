// Causal grouped-query attention on cuDNN's fused engines, bf16 and fp16. The pass is described as
// a graph of small operations, in the arrangement that cuDNN recognises and fuses; see Vaswani et
// al. 2017 and, for the backward pass from the saved log-sum-exp, Dao et al. 2022.
#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <map>
#include <optional>

#include "attention.h"
#include "cudnn_graph.h"
#include "workspace.h"

namespace tandem::cuda {
namespace {

using cudnn::Graph;
using cudnn::Layout;
using cudnn::Plan;
using Tensor = Graph::Tensor;

constexpr auto kF32 = CUDNN_DATA_FLOAT;

// Older ones need zeroed accumulators, or padding masks for lengths that are not multiples of 128.
constexpr std::size_t kOldestCudnn = 91600;
constexpr std::int64_t kMaxHeadDim = 128;  // of the backward engines
// Building a plan costs up to a second: what is shorter is quicker without.
constexpr std::int64_t kShortest = 64;

// The deterministic backward pass keeps all of dS: this much of it at a time, if one sequence fits
// in that, and not more than the limit if it does not.
constexpr std::int64_t kScoreBytes = std::int64_t{1} << 30;
constexpr std::int64_t kScoreBytesLimit = std::int64_t{8} << 30;

enum class Pass { kForward, kBackward, kBackwardDeterministic };

struct Shape {
  Pass pass;
  cudnnDataType_t storage;
  std::int64_t batch, heads, kv_heads, seq_len, head_dim;

  auto operator<=>(const Shape&) const = default;

  [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::int64_t rows() const { return batch * seq_len; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }

  // [batch, head, token, element] of some heads inside rows of `row` elements.
  [[nodiscard]] Layout part(std::int64_t count, std::int64_t row) const {
    return {{batch, count, seq_len, head_dim}, {seq_len * row, head_dim, row, 1}};
  }
  [[nodiscard]] Layout q() const { return part(heads, qkv_width()); }
  [[nodiscard]] Layout kv() const { return part(kv_heads, qkv_width()); }
  [[nodiscard]] Layout out() const { return part(heads, q_width()); }
  // One number a row and head, token after token; and the same, head after head, as scratch.
  [[nodiscard]] Layout lse() const {
    return {{batch, heads, seq_len, 1}, {seq_len * heads, 1, heads, 1}};
  }
  [[nodiscard]] Layout per_row() const { return Layout::packed({batch, heads, seq_len, 1}); }
  [[nodiscard]] Layout scores() const { return Layout::packed({batch, heads, seq_len, seq_len}); }
  [[nodiscard]] Layout per_head() const {
    return Layout::packed({batch, heads, seq_len, head_dim});
  }
};

// Tensors that lie in memory.
enum Id : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDOut, kDQ, kDK, kDV, kDelta, kDQSum };

// -inf where the key's position is past the query's.
Tensor causal(Graph& g, const Shape& s, Tensor scores) {
  const Tensor query = g.index(2, scores, g.between(CUDNN_DATA_INT32, s.scores()));
  const Tensor key = g.index(3, scores, g.between(CUDNN_DATA_INT32, s.scores()));
  const Tensor seen = g.at_least(query, key, g.between(CUDNN_DATA_BOOLEAN, s.scores()));
  const Tensor never = g.scalar(-std::numeric_limits<float>::infinity());
  return g.select(seen, scores, never, g.between(kF32, s.scores()));
}

// out = softmax(scale q k^T) v and lse = log sum exp.
Graph forward(const Shape& s) {
  Graph g;
  const auto scores = [&] { return g.between(kF32, s.scores()); };
  const auto per_row = [&] { return g.between(kF32, s.per_row()); };
  const Tensor q = g.tensor(kQ, s.storage, s.q());
  const Tensor k_t = g.tensor(kK, s.storage, s.kv().transposed());
  const Tensor v = g.tensor(kV, s.storage, s.kv()), out = g.tensor(kOut, s.storage, s.out());
  const Tensor lse = g.tensor(kLse, kF32, s.lse());

  const Tensor raw = g.matmul(q, k_t, scores());
  const Tensor scaled = g.binary(CUDNN_POINTWISE_MUL, raw, g.scalar(s.scale()), scores());
  const Tensor x = causal(g, s, scaled);
  const Tensor top = g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, per_row());
  const Tensor shifted = g.binary(CUDNN_POINTWISE_SUB, x, top, scores());
  const Tensor e = g.unary(CUDNN_POINTWISE_EXP, shifted, scores());
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, per_row());
  const Tensor log = g.unary(CUDNN_POINTWISE_LOG, sum, per_row());
  g.binary(CUDNN_POINTWISE_ADD, top, log, lse);
  const Tensor p = g.binary(CUDNN_POINTWISE_DIV, e, sum, g.between(s.storage, s.scores()));
  g.matmul(p, v, out);
  return g;
}

// to [kv heads] = m^T x with m of the scores' shape: heads that share keys are summed.
void transposed_product(Graph& g, const Shape& s, Tensor m, Tensor x, Tensor to) {
  const Tensor m_t = g.reshape(m, g.between(s.storage, s.scores().transposed()));
  if (s.heads == s.kv_heads) {
    g.matmul(m_t, x, to);
    return;
  }
  const Tensor all = g.matmul(m_t, x, g.between(s.storage, s.per_head()));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, all, to);
}

// d_q = dS k. The fast way adds to fp32 sums in memory with atomics, in any order; without those
// cuDNN keeps dS in its workspace and multiplies afterwards, in a fixed order.
void query_gradient(Graph& g, const Shape& s, Tensor d_s, Tensor k_t) {
  const Tensor d_q = g.tensor(kDQ, s.storage, s.q());
  const Tensor k = g.reshape(k_t, g.between(s.storage, s.kv()));
  if (s.pass == Pass::kBackwardDeterministic) {
    g.matmul(d_s, k, d_q);
    return;
  }
  const Tensor sums = g.matmul(d_s, k, g.tensor(kDQSum, kF32, s.per_head()));
  g.unary(CUDNN_POINTWISE_IDENTITY, sums, d_q);
}

Graph backward(const Shape& s) {
  Graph g;
  const auto scores = [&] { return g.between(kF32, s.scores()); };
  const Tensor q = g.tensor(kQ, s.storage, s.q());
  const Tensor k_t = g.tensor(kK, s.storage, s.kv().transposed());
  const Tensor v_t = g.tensor(kV, s.storage, s.kv().transposed());
  const Tensor out = g.tensor(kOut, s.storage, s.out());
  const Tensor d_out = g.tensor(kDOut, s.storage, s.out());
  const Tensor lse = g.tensor(kLse, kF32, s.lse());
  const Tensor d_k = g.tensor(kDK, s.storage, s.kv()), d_v = g.tensor(kDV, s.storage, s.kv());

  // delta = sum of d_out out over a head. The factor 1 stands where dropout would: the engines want
  // it.
  const Tensor products = g.binary(CUDNN_POINTWISE_MUL, d_out, out, g.between(kF32, s.per_head()));
  const Tensor dot = g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, g.between(kF32, s.per_row()));
  const Tensor delta =
      g.binary(CUDNN_POINTWISE_MUL, dot, g.scalar(1.0F), g.tensor(kDelta, kF32, s.per_row()));
  // p = exp(scale q k^T - lse)
  const Tensor scale = g.scalar(s.scale());
  const Tensor raw = g.matmul(q, k_t, scores());
  const Tensor scaled = g.binary(CUDNN_POINTWISE_MUL, raw, scale, scores());
  const Tensor log_p = causal(g, s, g.binary(CUDNN_POINTWISE_SUB, scaled, lse, scores()));
  const Tensor p = g.unary(CUDNN_POINTWISE_EXP, log_p, scores());
  transposed_product(g, s, p, d_out, d_v);
  // dS = scale p (d_out v^T - delta)
  const Tensor d_p = g.matmul(d_out, v_t, scores());
  const Tensor centred = g.binary(CUDNN_POINTWISE_SUB, d_p, delta, scores());
  const Tensor weighted = g.binary(CUDNN_POINTWISE_MUL, centred, p, scores());
  const Tensor d_s = g.binary(CUDNN_POINTWISE_MUL, weighted, scale, scores());
  transposed_product(g, s, d_s, q, d_k);
  query_gradient(g, s, d_s, k_t);
  return g;
}

// The cuDNN handle of one stream and the plans it has built or been refused.
class AttentionPlans {
 public:
  explicit AttentionPlans(CudaStream& stream) {
    cudnn::check(cudnnCreate(&handle_), "cudnnCreate");
    cudnn::check(cudnnSetStream(handle_, stream.handle()), "cudnnSetStream");
  }
  ~AttentionPlans() {
    plans_.clear();
    cudnnDestroy(handle_);
  }
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }

  // Null where cuDNN refuses the shape; asked and reported once.
  const Plan* find(const Shape& shape) {
    auto it = plans_.find(shape);
    if (it == plans_.end()) it = plans_.emplace(shape, build(shape)).first;
    return it->second ? &*it->second : nullptr;
  }

 private:
  std::optional<Plan> build(const Shape& s) {
    try {
      Graph graph = s.pass == Pass::kForward ? forward(s) : backward(s);
      return std::move(graph).compile(handle_);
    } catch (const cudnn::Refusal& refusal) {
      fmt::print(
          stderr,
          "warning: cuDNN refuses the {} attention of {} x {} tokens, {} heads, {} kv heads, "
          "head_dim {}; the plain kernels compute it, many times slower: {}\n",
          s.pass == Pass::kForward ? "forward" : "backward", s.batch, s.seq_len, s.heads,
          s.kv_heads, s.head_dim, refusal.what());
      return std::nullopt;
    }
  }
  cudnnHandle_t handle_ = nullptr;
  std::map<Shape, std::optional<Plan>> plans_;
};

bool aligned(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
}

bool supported(const ops::HeadShape& s, const View& qkv, const View& out) {
  const bool sixteen = qkv.dtype == DType::kBF16 || qkv.dtype == DType::kF16;
  return sixteen && out.dtype == qkv.dtype && s.head_dim <= kMaxHeadDim && s.head_dim % 8 == 0 &&
         s.seq_len >= kShortest && out.rows > 0 && aligned(qkv) && aligned(out) &&
         cudnnGetVersion() >= kOldestCudnn;
}

Shape shape_of(Pass pass, const ops::HeadShape& s, const View& out) {
  const std::int64_t rows = out.rows;
  TANDEM_CHECK(rows % s.seq_len == 0, "attention: {} rows are not sequences of {}", rows,
               s.seq_len);
  const auto storage = out.dtype == DType::kF16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
  return {pass, storage, rows / s.seq_len, s.heads, s.kv_heads, s.seq_len, s.head_dim};
}

// q, k and v (or their gradients) inside rows of qkv, from row `first` on.
struct Parts {
  void *q, *k, *v;

  Parts(const View& qkv, std::int64_t first, const Shape& s) {
    auto* at = static_cast<std::uint16_t*>(qkv.data) + first * qkv.cols;
    q = at;
    k = at + s.q_width();
    v = at + s.q_width() + s.kv_heads * s.head_dim;
  }
};

// Pieces of one allocation. The last is cuDNN's own.
struct Scratch {
  float* delta;
  float* d_q_sum;
  void* own;

  Scratch(CudaStream& stream, const Shape& s, const Plan& plan) {
    const auto rounded = [](std::int64_t floats) {
      return (static_cast<std::size_t>(floats) * sizeof(float) + 255) / 256 * 256;
    };
    const std::size_t deltas = s.pass == Pass::kForward ? 0 : rounded(s.rows() * s.heads);
    const bool sums = s.pass == Pass::kBackward;
    const std::size_t d_q_sums = sums ? rounded(s.rows() * s.q_width()) : 0;
    auto* base =
        stream.local<Workspace>().at_least<std::byte>(deltas + d_q_sums + plan.workspace_bytes());
    delta = reinterpret_cast<float*>(base);
    d_q_sum = sums ? reinterpret_cast<float*>(base + deltas) : nullptr;
    own = base + deltas + d_q_sums;
  }
};

// Bytes of dS as the engines lay it out, in tiles of 64 x 128.
std::int64_t score_bytes(const Shape& s) {
  const auto rounded = [&](std::int64_t unit) { return (s.seq_len + unit - 1) / unit * unit; };
  return s.batch * s.heads * rounded(64) * rounded(128) * 2;
}

// As many sequences at a time as fit, a divisor of all of them so that one plan serves. 0 where a
// single one is too much.
std::int64_t sequences_at_once(Shape s) {
  const std::int64_t all = s.batch;
  s.batch = 1;
  if (score_bytes(s) > kScoreBytesLimit) return 0;
  std::int64_t count = std::clamp<std::int64_t>(kScoreBytes / score_bytes(s), 1, all);
  while (all % count != 0) --count;
  return count;
}

// The sequences of shape.batch, beginning with row `first`.
void run_backward(const ops::AttentionBwd& op, const Shape& s, const Plan& plan, std::int64_t first,
                  cudnnHandle_t handle, CudaStream& stream) {
  const Parts in(op.qkv, first, s), grad(op.d_qkv, first, s);
  const Scratch scratch(stream, s, plan);
  std::vector<cudnn::Binding> bindings = {{kQ, in.q},
                                          {kK, in.k},
                                          {kV, in.v},
                                          {kOut, op.out.slice(first, s.rows()).data},
                                          {kDQ, grad.q},
                                          {kDK, grad.k},
                                          {kDV, grad.v},
                                          {kDOut, op.d_out.slice(first, s.rows()).data},
                                          {kLse, op.lse.slice(first, s.rows()).data},
                                          {kDelta, scratch.delta}};
  if (s.pass == Pass::kBackward) bindings.push_back({kDQSum, scratch.d_q_sum});
  plan.run(handle, bindings, scratch.own);
}

}  // namespace

bool cudnn_attention(const ops::AttentionFwd& op, CudaStream& stream) {
  if (!supported(op.shape, op.qkv, op.out) || !aligned(op.lse)) return false;
  const Shape shape = shape_of(Pass::kForward, op.shape, op.out);
  auto& plans = stream.local<AttentionPlans>();
  const Plan* plan = plans.find(shape);
  if (plan == nullptr) return false;
  const Parts in(op.qkv, 0, shape);
  const cudnn::Binding bindings[] = {
      {kQ, in.q}, {kK, in.k}, {kV, in.v}, {kOut, op.out.data}, {kLse, op.lse.data}};
  plan->run(plans.handle(), bindings, Scratch(stream, shape, *plan).own);
  return true;
}

bool cudnn_attention(const ops::AttentionBwd& op, CudaStream& stream) {
  if (!supported(op.shape, op.qkv, op.out) || !aligned(op.lse) || !aligned(op.d_out) ||
      !aligned(op.d_qkv))
    return false;
  const bool fixed = stream.deterministic();
  Shape shape = shape_of(fixed ? Pass::kBackwardDeterministic : Pass::kBackward, op.shape, op.out);
  if (fixed) shape.batch = sequences_at_once(shape);
  if (shape.batch == 0) return false;
  if (!aligned(op.lse.slice(shape.rows(), 0))) return false;
  auto& plans = stream.local<AttentionPlans>();
  const Plan* plan = plans.find(shape);
  if (plan == nullptr) return false;
  for (std::int64_t first = 0; first < op.out.rows; first += shape.rows())
    run_backward(op, shape, *plan, first, plans.handle(), stream);
  return true;
}

}  // namespace tandem::cuda
